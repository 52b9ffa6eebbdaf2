"""ucmd as a service: settings, supervision, privileges, limits, and programs that behave badly."""

import json
import os
import pathlib
import re
import signal
import socket

from lab import ORDINARY_UID, Failure, Lab, wait_until
from life import daemon_of
from programs import RPING_PORT, endless_rping, rping

# Becomes a program with the socket as descriptor 3, as systemd starts a service.
PASS_SOCKET = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\\0ucm")
listener.listen(1024)
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
os.setgroups([]); os.setresgid(UID, UID, UID); os.setresuid(UID, UID, UID)
os.execv(sys.argv[1], sys.argv[1:])
""".replace("UID", str(ORDINARY_UID))

# An rdma_cm ID of the kernel's port space TCP that is bound to a port, by librdmacm itself; tells the error.
BIND = """
import ctypes, os, socket, struct, sys
library = ctypes.CDLL("librdmacm.so.1", use_errno=True)
library.rdma_create_event_channel.restype = ctypes.c_void_p
channel = library.rdma_create_event_channel()
identity = ctypes.c_void_p()
assert library.rdma_create_id(ctypes.c_void_p(channel), ctypes.byref(identity), None, 0x0106) == 0
address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(int(sys.argv[1])), socket.inet_aton("127.0.0.1"))
print("bound" if library.rdma_bind_addr(identity, address) == 0 else os.strerror(ctypes.get_errno()))
"""

# Makes IDs until it gets an error, and tells how many and which.
FILL = """
import ctypes, os, time
library = ctypes.CDLL("librdmacm.so.1", use_errno=True)
library.rdma_create_event_channel.restype = ctypes.c_void_p
channel = ctypes.c_void_p(library.rdma_create_event_channel())
made = 0
while library.rdma_create_id(channel, ctypes.byref(ctypes.c_void_p()), None, 0x0106) == 0:
    made += 1
print(made, os.strerror(ctypes.get_errno()), flush=True)
time.sleep(1000)
"""


def start_ucmd(lab: Lab, space, *options: str, **rest):
    daemon = lab.start(space, lab.executable("ucmd"), "--foreground", *options, **rest)
    daemon.expect("serves @ucm")
    return daemon


def settings(lab: Lab):
    """ucmd.toml is checked, read, and read again on SIGHUP; the command line wins; JSON lines are JSON."""
    space = lab.namespace("a")
    file = lab.directory / "ucmd.toml"
    log = lab.directory / "ucmd.log"

    def check(text: str) -> tuple[int, str]:
        file.write_text(text)
        program = lab.start(space, lab.executable("ucmd"), "--check-config", "--config", str(file))
        return program.wait(), program.output()

    if check('[log]\nlevel = "debug"\n') != (0, f"{file}: good\n"):
        raise Failure("a good file is not found good")
    code, text = check('[log]\nlevel = "loud"\n')
    if code != 1 or f"{file}:2:9: log.level must be one of" not in text:
        raise Failure(f"of a bad file: {text}")
    refused = lab.start(space, lab.executable("ucmd"), "--config", str(file))
    if refused.wait() == 0 or daemon_of(space) is not None:
        raise Failure("ucmd starts with a bad file")

    file.write_text(f'[log]\nformat = "json"\nfile = "{log}"\nlevel = "debug"\n[limits.program]\nids = 5\n')
    lab.start(space, lab.executable("ucmd"), "--config", str(file), "--log-level", "info").succeed()
    daemon = daemon_of(space)
    for expected, limit in ((5, 7), (7, None)):
        filler = lab.ucm_run(space, "python3", "-c", FILL)
        filler.expect(f"^{expected} Cannot allocate memory$")
        filler.signal(signal.SIGKILL)
        if limit is not None:
            file.write_text(file.read_text().replace(f"ids = {expected}", f"ids = {limit}"))
            os.kill(daemon, signal.SIGHUP)
            wait_until(lambda: "settings read again" in log.read_text(), "the settings read again")
    file.write_text("[node]\nflight_records = 3\n")
    os.kill(daemon, signal.SIGHUP)
    wait_until(lambda: "settings are not read again" in log.read_text(), "the fault told")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    if any(line["pid"] != daemon or line["level"] == "debug" for line in lines):
        raise Failure(f"log: {lines}")
    told = [line["message"] for line in lines if "refused" in line["message"]]
    if len(told) != 2 or not all(re.search(r"process \d+ \(python3\) of user 0 refused by the limit of ids", one) for one in told):
        raise Failure(f"refusals: {told}")
    counters = json.loads(lab.ucm(space, "stats", "--json").succeed())["counters"]
    if counters["refused_ids"] != 2:
        raise Failure(f"counted: {counters}")


def supervised(lab: Lab):
    """A supervisor passes the socket to an unprivileged ucmd, which root's and users' programs trust, and hears of it."""
    path = lab.path("loopback4")
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = str(lab.directory / "notify")
    notified.bind(name)
    os.chmod(name, 0o666)
    notified.settimeout(20)
    daemon = lab.start(path.server, "python3", "-c", PASS_SOCKET, lab.executable("ucmd"), "--foreground",
                       settings=[f"NOTIFY_SOCKET={name}", "WATCHDOG_USEC=200000"])

    def hear(expected: str):
        while expected not in (heard := notified.recv(1000).decode()):
            if heard != "WATCHDOG=1":
                raise Failure(f"the supervisor hears '{heard}', not {expected}")

    hear("READY=1\nSTATUS=serves @ucm")
    for _ in range(3):
        hear("WATCHDOG=1")
    rping(lab, path, "-S", "100", count=10)
    lab.ucm_run(path.server, "true", user="user").succeed()
    if daemon_of(path.server) != daemon.pid:
        raise Failure("another ucmd runs")
    if path.server.process_named("ucm-holder") is not None:
        raise Failure("a companion would start the next ucmd, which is the supervisor's affair")
    daemon.signal(signal.SIGHUP)
    hear("RELOADING=1")
    hear("READY=1")
    daemon.signal(signal.SIGTERM)
    hear("STOPPING=1")
    if daemon.wait() != 0:
        raise Failure("ucmd did not end in good order")


def unprivileged(lab: Lab):
    """Root's ucmd has no capability left when it serves."""
    space = lab.namespace("a")
    daemon = start_ucmd(lab, space)
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
                  if ":\t" in line)
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(status[capabilities], 16) != 0:
            raise Failure(f"{capabilities}: {status[capabilities]}")
    if status["NoNewPrivs"] != "1":
        raise Failure("ucmd can get new privileges")


def low_ports(lab: Lab):
    """A service port below 1024 needs CAP_NET_BIND_SERVICE, as in Linux, whatever the user."""
    space = lab.namespace("a")
    start_ucmd(lab, space)

    def expect(answer: str, port: int, *before: str, **rest):
        found = lab.start(space, *before, lab.executable("ucm"), "run", "--", "python3", "-c", BIND, str(port), **rest).succeed()
        if found.strip() != answer:
            raise Failure(f"port {port} {' '.join(before)} {rest}: {found}")

    user = ["setpriv", "--reuid", str(ORDINARY_UID), "--regid", str(ORDINARY_UID), "--clear-groups"]
    expect("bound", 700)
    expect("Permission denied", 700, user="user")
    expect("bound", 1024, user="user")
    expect("bound", 700, *user, "--inh-caps", "+net_bind_service", "--ambient-caps", "+net_bind_service")
    expect("Permission denied", 700, "setpriv", "--bounding-set", "-net_bind_service", "--inh-caps", "-net_bind_service")
    lab.ucm(space, "stop").succeed()
    wait_until(lambda: daemon_of(space) is None, "daemon gone")
    space.shell("echo 600 >/proc/sys/net/ipv4/ip_unprivileged_port_start")
    start_ucmd(lab, space)
    expect("bound", 700, user="user")
    expect("Permission denied", 599, user="user")


def stalled(lab: Lab):
    """Programs that stop in the middle of their work do not disturb others, nor do hundreds of them."""
    path = lab.path("loopback4")
    server, client = endless_rping(lab, path)
    listening = lab.ucm_run(path.server, "rping", "-s", "-P", "-p", "7999", "-a", path.bind_address)
    lab.wait_listening(path.server, 7999)
    for program in (server, client, listening):
        program.signal(signal.SIGSTOP)
    # It does not take this one; the node does not wait for it.
    knocking = lab.ucm_run(path.client, "rping", "-c", "-p", "7999", "-C", "1", "-a", path.address)
    for port in range(7200, 7205):
        common = ["-V", "-C", "10", "-p", str(port)]
        other = lab.ucm_run(path.server, "rping", "-s", "-a", path.bind_address, *common)
        lab.wait_listening(path.server, port)
        lab.ucm_run(path.client, "rping", "-c", "-a", path.address, *common).succeed()
        other.succeed()
    if not knocking.running():
        raise Failure("a stopped program has answered")
    for program in (server, client, listening):
        program.signal(signal.SIGCONT)
    knocking.succeed()
    seen = len(client.output())
    wait_until(lambda: len(client.output()) > seen, "the stopped pair goes on")


CASES = {case.__name__: case for case in (settings, supervised, unprivileged, low_ports, stalled)}
for case in CASES.values():
    case.short = case in (settings, supervised)
