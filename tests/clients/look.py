"""What `ucm list`, `show`, `stats`, `trace` and `capture` tell of the programs that run."""

import json
import re
import signal
import subprocess
from xml.etree import ElementTree

from lab import Failure, Lab, wait_until
from life import endless_rping
from programs import RPING_PORT, rping


def entries(lab: Lab, space, *filters: str, user: str = "root") -> list[dict]:
    text = lab.ucm(space, "list", "--json", *filters, user=user).succeed()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def established(lab: Lab, space) -> dict:
    wait_until(lambda: len(entries(lab, space, "--state", "established")) == 1, "one established connection")
    return entries(lab, space, "--state", "established")[0]


def contains(text: str, *patterns: str) -> None:
    for pattern in patterns:
        if not re.search(pattern, text):
            raise Failure(f"'{pattern}' is missing in:\n{text}")


def list_and_show(lab: Lab):
    """A connection with all that is known of it on both sides, in 80 columns; its story, also when it is over."""
    path = lab.path("veth4")
    _, client = endless_rping(lab, path)
    one, other = established(lab, path.client), established(lab, path.server)
    for mine, theirs in ((one, other), (other, one)):
        if (mine["local"], mine["local_comm_id"], mine["qpn"]) != (theirs["remote"], theirs["remote_comm_id"],
                                                                   theirs["peer_qpn"]):
            raise Failure(f"two views of one connection: {mine} {theirs}")
    if not one["active"] or other["active"] or one["program"] != "rping":
        raise Failure(f"who asked, and which program? {one} {other}")
    listeners = entries(lab, path.server, "--state", "listening")
    if [entry["local"].split(":")[1] for entry in listeners] != [str(RPING_PORT)]:
        raise Failure(f"listeners: {listeners}")
    if entries(lab, path.client, "--address", "10.77.0.99") or entries(lab, path.client, "--pid", "1"):
        raise Failure("filters let through what does not match")
    text = lab.ucm(path.client, "list").succeed()
    contains(text, f"#{one['id']} established, active", "rping", r"10\.77\.0\.", f"0x{one['local_comm_id']:08x}",
             r"sent \w+ .* ago", r"received \w+ .* ago", r"retries \d+")
    wide = [line for line in text.splitlines() if len(line) > 80]
    if wide:
        raise Failure(f"wider than 80 columns: {wide}")

    story = lab.ucm(path.client, "show", str(one["id"])).succeed()
    contains(story, "call +resolve_addr", r"sent +REQ", r"received +REP +(mra_req_received|req_sent) -> rep_received",
             "event +CONNECT_RESPONSE", r"sent +RTU")
    drawing = ElementTree.fromstring(lab.ucm(path.client, "diagram", str(one["id"])).succeed())
    arrows = [line for line in drawing.iter("{http://www.w3.org/2000/svg}line") if "arrow" in line.get("class")]
    if len(arrows) < len(re.findall(r"(?m)^ +\+[\d.]+  (?:sent|received) ", story)):
        raise Failure(f"{len(arrows)} arrows for:\n{story}")
    client.signal(signal.SIGKILL)
    wait_until(lambda: not entries(lab, path.client), "connection gone")
    comm_id = f"0x{one['local_comm_id']:08x}"
    contains(lab.ucm(path.client, "show", comm_id).succeed(), r"sent +DREQ", "orphaned -> gone")
    missing = lab.ucm(path.client, "show", "4000000000")
    if missing.wait() == 0:
        raise Failure("`ucm show` of nothing succeeds")
    missing.expect("nothing is recorded")


def statistics(lab: Lab):
    path = lab.path("loopback4")
    rping(lab, path, "-S", "100", count=10)
    stats = json.loads(lab.ucm(path.client, "stats", "--json").succeed())
    for message in ("REQ", "REP", "RTU", "DREQ", "DREP"):
        counts = stats["messages"][message]
        if counts["sent"] == 0 or counts["received"] == 0:
            raise Failure(f"{message}: {counts}")
    if stats["set_up_time"]["count"] != 2:  # both sides of one connection
        raise Failure(f"set-up: {stats['set_up_time']}")
    text = lab.ucm(path.client, "stats", "--prometheus").succeed()
    contains(text, r'ucm_messages_total\{message="REQ",what="sent"\} [1-9]', r'ucm_connections\{state="established"\} \d',
             r'ucm_state_seconds_bucket\{state="req_sent",le="\+Inf"\} 1\n', r"ucm_set_up_seconds_count 2\n")
    file = lab.directory / "ucm.prom"
    lab.ucm(path.client, "stats", "--prometheus", str(file)).succeed()
    contains(file.read_text(), "# TYPE ucm_set_up_seconds histogram")
    contains(lab.ucm(path.client, "stats").succeed(), r"REQ +[1-9]", "set-up")


def trace_and_capture(lab: Lab):
    """Who watches sees each message as it happens, and Wireshark reads the capture."""
    path = lab.path("veth4")
    server = lab.ucm_run(path.server, "rping", "-s", "-a", path.bind_address)
    lab.wait_listening(path.server, RPING_PORT)
    file = lab.directory / "cm.pcapng"
    trace = lab.ucm(path.server, "trace", "--messages")
    capture = lab.ucm(path.server, "capture", "-w", str(file))
    wait_until(lambda: observers(lab, path.server) == 2, "two observers")
    lab.ucm_run(path.client, "rping", "-c", "-C", "3", "-a", path.address).succeed()
    server.wait()
    # On a busy machine messages come more than once.
    trace.expect("received REQ +new connection, req_queued; service 0x0000000001061c06 qpn")
    trace.expect("sent +REP +for accept, in rep_sent; qpn")
    trace.expect(r"received RTU +(mra_rep_received|rep_sent) -> established|received DREQ +\w*rep\w* -> dreq_received")
    trace.expect("DREP")
    # In the order in which they came first.
    wait_until(lambda: list(dict.fromkeys(packet[0] for packet in captured(file)))[-1:] == ["0x0016"], "captured DREP")
    for packet in captured(file):
        if packet[1:3] != ["1", "1"] or not re.match(r"ID \d+, comm 0x", packet[3]):
            raise Failure(f"checksums or comment: {packet}")
    for program in (trace, capture):
        program.end()


def captured(file) -> list[list[str]]:
    """Attribute, checksums and comment of each packet, as tshark reads them."""
    lines = subprocess.run(["tshark", "-r", str(file), "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
                            "-T", "fields", "-e", "infiniband.mad.attributeid", "-e", "ip.checksum.status", "-e",
                            "udp.checksum.status", "-e", "frame.comment"], check=False, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True).stdout.splitlines()
    return [line.split("\t") for line in lines]


def observers(lab: Lab, space) -> int:
    stats = json.loads(lab.ucm(space, "stats", "--json").succeed())
    return stats["held"]["traces"]


def privacy(lab: Lab):
    """An ordinary user sees only what is that user's."""
    path = lab.path("loopback4")
    server = lab.ucm_run(path.server, "rping", "-s", "-a", path.bind_address)  # root's
    lab.wait_listening(path.server, RPING_PORT)
    own = lab.ucm_run(path.server, "rping", "-s", "-p", "7999", "-a", path.bind_address, user="user")
    lab.wait_listening(path.server, 7999)
    seen = {entry["local"] for entry in entries(lab, path.server, user="user")}
    if seen != {f"{path.bind_address}:7999"}:
        raise Failure(f"an ordinary user sees {seen}")
    if len(entries(lab, path.server)) != 2:
        raise Failure("root does not see all")
    roots = next(entry["id"] for entry in entries(lab, path.server) if entry["uid"] == 0)
    forbidden = lab.ucm(path.server, "show", str(roots), user="user")
    if forbidden.wait() == 0:
        raise Failure("an ordinary user reads root's story")
    for program in (server, own):
        program.signal(signal.SIGKILL)


CASES = {case.__name__: case for case in (list_and_show, statistics, trace_and_capture, privacy)}
for case in CASES.values():
    case.sanitized = case in (list_and_show, trace_and_capture)
