"""What is on the wire, seen by others than ourselves: tshark, and a checker of every packet's ICRC."""

import signal
import subprocess

from lab import Failure, Lab, wait_until
from programs import RPING_PORT, rping

ATTRIBUTES = {"0x0010": "REQ", "0x0013": "REP", "0x0014": "RTU", "0x0015": "DREQ", "0x0016": "DREP"}

FIELDS = {
    "attribute": "infiniband.mad.attributeid",
    "source4": "ip.src",
    "source6": "ipv6.src",
    "identification": "ip.id",
    "do_not_fragment": "ip.flags.df",
    "destination_qp": "infiniband.bth.destqp",
    "qkey": "infiniband.deth.q_key",
    "req_comm_id": "infiniband.cm.req",
    "req_port": "infiniband.cm.req.serviceid.dport",
    "req_qpn": "infiniband.cm.req.localqpn",
    "req_remote_timeout": "infiniband.cm.req.remoteresptout",
    "req_local_timeout": "infiniband.cm.req.localresptout",
    "req_max_retries": "infiniband.cm.req.maxcmretr",
    "req_ip_version": "infiniband.cm.req.ip_cm.ipv",
    "rep_comm_id": "infiniband.cm.rep",
    "rep_remote_comm_id": "infiniband.cm.rep.remotecommid",
    "rep_qpn": "infiniband.cm.rep.localqpn",
    "rtu_comm_id": "infiniband.cm.rtu.localcommid",
    "rtu_remote_comm_id": "infiniband.cm.rtu.remotecommid",
    "dreq_comm_id": "infiniband.cm.dreq.localcommid",
    "dreq_remote_comm_id": "infiniband.cm.dreq.remotecommid",
    "dreq_qpn": "infiniband.cm.req.remoteqpneecn",  # tshark's name
    "drep_comm_id": "infiniband.cm.drsp.localcommid",
    "drep_remote_comm_id": "infiniband.cm.drsp.remotecommid",
}


def capture(lab: Lab, kind: str) -> str:
    """Captures one rping connection; returns the capture file's name."""
    path = lab.path(kind)
    file = lab.directory / "wire.pcap"
    tshark = lab.start(path.server, "tshark", "-q", "-l", "-F", "pcap", "-i", "veth_a", "-f", "udp port 4791", "-w",
                       str(file), settings=[])
    tshark.expect("Capturing on")
    wait_until(file.exists, "capture file")  # made once the capture has begun
    rping(lab, path, "-S", "10000", count=20)
    wait_until(lambda: "DREP" in [message.get("name") for message in messages(file)], "captured DREP")
    tshark.signal(signal.SIGINT)
    tshark.succeed()
    return str(file)


def messages(file) -> list[dict[str, str]]:
    """The CM messages in a capture as tshark reads them, in order."""
    fields = [argument for name in FIELDS.values() for argument in ("-e", name)]
    lines = subprocess.run(["tshark", "-r", str(file), "-Y", "infiniband.mad", "-T", "fields", *fields], check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.splitlines()
    found = []
    for line in lines:
        message = dict(zip(FIELDS, line.split("\t")))
        message["name"] = ATTRIBUTES.get(message["attribute"], message["attribute"])
        found.append(message)
    return found


def equal(what: str, found, expected) -> None:
    if found != expected:
        raise Failure(f"{what}: {found}, expected {expected}")


def check_messages(file: str, ip_version: int) -> None:
    found = messages(file)
    equal("messages", [message["name"] for message in found], ["REQ", "REP", "RTU", "DREQ", "DREP"])
    req, rep, rtu, dreq, drep = found
    server, client = ("10.77.0.1", "10.77.0.2") if ip_version == 4 else ("fd77::1", "fd77::2")
    for message, source in ((req, client), (rep, server), (rtu, client)):
        equal(f"source of {message['name']}", message[f"source{ip_version}"], source)
    for message in found:
        equal("destination QP", int(message["destination_qp"], 16), 1)
        if ip_version == 4:
            equal("IP identification", int(message["identification"], 16), 0)
            equal("do not fragment", message["do_not_fragment"], "1")
    equal("service port", int(req["req_port"], 16), RPING_PORT)
    equal("IP version in the private data", int(req["req_ip_version"], 16), ip_version)
    equal("response timeouts", (int(req["req_remote_timeout"], 16), int(req["req_local_timeout"], 16)), (20, 20))
    equal("CM retries", int(req["req_max_retries"], 16), 15)
    client_id, server_id = req["req_comm_id"], rep["rep_comm_id"]
    equal("REP's remote comm ID", rep["rep_remote_comm_id"], client_id)
    equal("RTU's comm IDs", (rtu["rtu_comm_id"], rtu["rtu_remote_comm_id"]), (client_id, server_id))
    # Either side may be the one that disconnects first.
    from_client = dreq["dreq_comm_id"] == client_id
    near, far = (client_id, server_id) if from_client else (server_id, client_id)
    equal("DREQ's comm IDs", (dreq["dreq_comm_id"], dreq["dreq_remote_comm_id"]), (near, far))
    equal("DREQ's QP number", dreq["dreq_qpn"], rep["rep_qpn"] if from_client else req["req_qpn"])
    equal("DREP's comm IDs", (drep["drep_comm_id"], drep["drep_remote_comm_id"]), (far, near))


def check_icrc(lab: Lab, file: str) -> None:
    done = subprocess.run([lab.executable("ucm-pcap-check"), file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    print(done.stdout.strip())
    if done.returncode != 0:
        raise Failure("ucm-pcap-check found wrong packets")


def tshark_ipv4(lab: Lab):
    file = capture(lab, "veth4")
    check_messages(file, 4)
    check_icrc(lab, file)


def tshark_ipv6(lab: Lab):
    file = capture(lab, "veth6")
    check_messages(file, 6)
    check_icrc(lab, file)


CASES = {case.__name__: case for case in (tshark_ipv4, tshark_ipv6)}
for case in CASES.values():
    case.short = False
