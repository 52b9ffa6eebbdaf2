"""Debian's rdmacm-utils, as they are, over every kind of path, as root and as an ordinary user."""

import functools
import re
import signal

from catalogue import Missing, Row
from lab import PATHS, VETH_B_ADDRESS, Failure, Lab, Path, Program, wait_until

RPING_PORT = 7174
CMATOSE_PORT = 7471  # of ucmatose, cmtime and rdma_server, too
UDADDY_PORT = 7174

# What a size-and-count run may take at most. Normal is one second or two; sanitizers multiply it.
RUN_S = 90.0

CMTIME_STEPS = ("create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy")


def pair(lab: Lab, path: Path, server: list[str], client: list[str], port: int, user: str, **rest):
    """Starts a server, waits until it listens, and starts its client."""
    serving = lab.ucm_run(path.server, *server, user=user, **rest)
    lab.wait_listening(path.server, port, user)
    return serving, lab.ucm_run(path.client, *client, user=user, **rest)


def rping(lab: Lab, path: Path, *options: str, user: str = "root", count: int = 1000, timeout_s: float = RUN_S, **rest):
    """Runs one rping pair that verifies `count` round trips, each a READ and a WRITE by the server."""
    common = ["-V", "-C", str(count), *options]
    server, client = pair(lab, path, ["rping", "-s", "-a", path.bind_address, *common],
                          ["rping", "-c", "-a", path.address, *common], RPING_PORT, user, **rest)
    output = client.succeed(timeout_s)
    server.succeed()
    if "-v" in options:
        # Standard error goes to the same file, now and then into the middle of a line.
        output = output.replace("client DISCONNECT EVENT...\n", "")
        pings = len(re.findall(r"^ping data: rdma-ping-\d+: ", output, re.MULTILINE))
        if pings != count:
            raise Failure(f"rping printed {pings} pings, not {count}")


def pings(program: Program) -> int:
    return len(re.findall(r"^ping data: ", program.output(), re.MULTILINE))


def goes_on(client: Program) -> None:
    """Data flows now."""
    before = pings(client)
    wait_until(lambda: pings(client) > before + 2, f"{client.title}: data goes on")


def endless_rping(lab: Lab, path: Path) -> tuple[Program, Program]:
    """An rping pair in the middle of its work."""
    server = lab.ucm_run(path.server, "rping", "-s", "-a", path.bind_address)
    lab.wait_listening(path.server, RPING_PORT)
    client = lab.ucm_run(path.client, "rping", "-c", "-v", "-C", "100000000", "-a", path.address)
    goes_on(client)
    return server, client


def finish_rping(client, count: int) -> None:
    """Waits for an rping client with -d. At its end Debian's closes the event channel under its own event thread, which now and
    then makes it exit with 255 after all is done."""
    code = client.wait(RUN_S)
    output = client.output()
    late = code == 255 and "rdma_get_cm_event: Bad file descriptor" in output
    if (code != 0 and not late) or output.count("recv completion") != 2 * count or "mismatch" in output:
        raise Failure(f"{client.title}: exit code {code}, {output.count('recv completion')} messages received")


def ucmatose(lab: Lab, path: Path, *options: str, user: str = "root", timeout_s: float = RUN_S, **rest):
    server, client = pair(lab, path, ["ucmatose", "-b", path.bind_address, *options],
                          ["ucmatose", "-s", path.address, *options], CMATOSE_PORT, user, **rest)
    for program in (client, server):
        output = program.succeed(timeout_s)
        for line in ("data transfers complete", "test complete", "return status 0"):
            if line not in output:
                raise Failure(f"{program.title}: did not print '{line}'")


def udaddy(lab: Lab, path: Path, *options: str, user: str = "root", timeout_s: float = RUN_S, **rest):
    """Datagrams to as many services as -c says, and back; the network must not lose any."""
    server, client = pair(lab, path, ["udaddy", "-b", path.bind_address, *options],
                          ["udaddy", "-s", path.address, *options], UDADDY_PORT, user, **rest)
    for program in (client, server):
        output = program.succeed(timeout_s)
        for line in ("data transfers complete", "test complete", "return status 0"):
            if line not in output:
                raise Failure(f"{program.title}: did not print '{line}'")


MULTICAST_GROUP = "239.77.1.1"


# Field case 8.04
def mckey(lab: Lab, path: Path, *options: str, user: str = "root", timeout_s: float = RUN_S, **rest):
    """Two programs at the receiving end and one sender: each receiver gets every datagram of the group."""
    common = ["stdbuf", "-oL", "mckey", "-m", MULTICAST_GROUP, *options]
    receivers = [lab.ucm_run(path.server, *common, "-b", path.address, user=user, **rest) for _ in range(2)]
    for receiver in receivers:
        receiver.expect("receiving data transfers")
    own_address = path.address if path.client is path.server else VETH_B_ADDRESS
    sender = lab.ucm_run(path.client, *common, "-s", "-b", own_address, user=user, **rest)
    for program in (sender, *receivers):
        output = program.succeed(timeout_s)
        for line in (f"joined dgid: ::ffff:{MULTICAST_GROUP}", "data transfers complete", "return status 0"):
            if line not in output:
                raise Failure(f"{program.title}: did not print '{line}'")


def cmtime_table(client: Program, timeout_s: float = RUN_S) -> str:
    """The step table of a cmtime client that is through with all its connections."""
    table = client.succeed(timeout_s)
    for step in CMTIME_STEPS:
        if not re.search(rf"^{step}\s*:(\s*\d+\.\d\d){{4}}", table, re.MULTILINE):
            raise Failure(f"cmtime printed no times for '{step}'")
    if "error" in table:
        raise Failure("cmtime printed errors")
    return table


def cmtime(lab: Lab, path: Path, *options: str, user: str = "root", timeout_s: float = RUN_S, **rest) -> str:
    """Returns the client's step table. Debian's cmtime server never exits by itself."""
    server, client = pair(lab, path, ["cmtime", "-b", path.bind_address, *options],
                          ["cmtime", "-s", path.address, *options], CMATOSE_PORT, user, **rest)
    table = cmtime_table(client, timeout_s)
    if not server.running():
        raise Failure("the cmtime server ended")
    server.end()
    return table


# Field case 7.01
def rdma_client(lab: Lab, path: Path, user: str = "root", **rest):
    server, client = pair(lab, path, ["rdma_server", "-s", path.bind_address], ["rdma_client", "-s", path.address],
                          CMATOSE_PORT, user, **rest)
    if "rdma_client: end 0" not in client.succeed() or "rdma_server: end 0" not in server.succeed():
        raise Failure("rdma_client or rdma_server did not end with 0")


def rdma_xclient(lab: Lab, path: Path, service: str, user: str = "root", **rest):
    """It listens on the IPv4 wildcard only. Neither side prints anything of a message that has come."""
    server, client = pair(lab, path, ["rdma_xserver", "-c", service], ["rdma_xclient", "-s", path.address, "-c", service],
                          CMATOSE_PORT, user, **rest)
    if "end 0" not in client.succeed() or "end 0" not in server.succeed():
        raise Failure("rdma_xclient or rdma_xserver did not end with 0")


def rping_sizes(lab: Lab, path: Path, user: str):
    for size in ("64", "4096", "65535"):
        rping(lab, path, "-v", "-S", size, user=user)
    rping(lab, path, "-q", "-S", "1000", user=user)


def rping_many(lab: Lab, path: Path, user: str = "root", clients: int = 64, count: int = 100):
    """One persistent server and many clients, a few milliseconds apart: each starts once the one before is connected, since
    Debian's rping overwrites the ID of a request that it has not accepted yet."""
    server = lab.ucm_run(path.server, "rping", "-s", "-P", "-a", path.bind_address, user=user)
    lab.wait_listening(path.server, RPING_PORT, user)
    running = []
    for _ in range(clients):
        running.append(lab.ucm_run(path.client, "rping", "-c", "-d", "-V", "-C", str(count), "-a", path.address, user=user))
        running[-1].expect("ESTABLISHED")
    for client in running:
        finish_rping(client, count)
    if not server.running():
        raise Failure("the persistent rping server ended")
    server.signal(signal.SIGINT)
    server.end()


def ucmatose_many(lab: Lab, path: Path, user: str):
    ucmatose(lab, path, "-c", "500", "-C", "50", "-S", "4096", user=user)


# Field case 7.03
def ucmatose_migrate(lab: Lab, path: Path, user: str):
    ucmatose(lab, path, "-c", "20", "-C", "10", "-m", user=user)


def udaddy_many(lab: Lab, path: Path, user: str):
    udaddy(lab, path, "-c", "10", "-C", "10", "-S", "1024", user=user)
    udaddy(lab, path, "-c", "64", "-C", "1", "-S", "1", user=user)
    udaddy(lab, path, "-p", "0x0002", "-C", "1", user=user)  # RDMA_PS_IPOIB


def cmtime_many(lab: Lab, path: Path, user: str):
    print(cmtime(lab, path, "-c", "1000", user=user))


def mckey_many(lab: Lab, path: Path, user: str):
    port_space = "0x0111" if user == "root" else "0x0002"  # RDMA_PS_UDP, RDMA_PS_IPOIB
    mckey(lab, path, "-c", "4", "-C", "10", "-S", "1024", "-p", port_space, user=user)


# Field case 9.08
def everything_small(lab: Lab, path: Path, user: str):
    """Every program once, with little data: for the slow builds, and for paths that differ in the address only."""
    rping(lab, path, "-v", "-S", "100", user=user, count=100)
    rping(lab, path, "-S", "65535", user=user, count=50)
    rping(lab, path, "-q", user=user, count=100)
    ucmatose(lab, path, "-c", "20", "-C", "10", "-S", "4096", user=user)
    ucmatose(lab, path, "-c", "5", "-m", user=user)
    cmtime(lab, path, "-c", "50", user=user)
    udaddy(lab, path, "-c", "4", "-C", "4", "-S", "1000", user=user)
    rdma_client(lab, path, user=user)
    if path.address.count("."):
        rdma_xclient(lab, path, "r", user=user)
        rdma_xclient(lab, path, "x", user=user)


def on_path(function, kind: str, user: str):
    @functools.wraps(function)
    def case(lab: Lab):
        function(lab, lab.path(kind), user)

    case.short = function is everything_small and user == "root" and kind in ("loopback4", "veth6") or (
        function is everything_small and user == "user" and kind == "veth4")
    return case


def rdma_client_case(lab: Lab, path: Path, user: str):
    rdma_client(lab, path, user)


def rdma_xclient_both(lab: Lab, path: Path, user: str):
    rdma_xclient(lab, path, "r", user)
    rdma_xclient(lab, path, "x", user)


PACKAGES = {"rdmacm-utils": "44.0"}
# Each over loopback, the host's own address and between two namespaces; IPv4, IPv6, link-local; as root and as a user.
ROWS = [
    Row("rping", "64 to 65,535 bytes, checked; events only (`-q`)", "rping."),
    Row("rping", "one persistent server, 64 clients", "rping_many."),
    Row("ucmatose", "500 connections, 50 messages each", "ucmatose."),
    Row("ucmatose", "IDs migrated between channels (`-m`)", "ucmatose_migrate."),
    Row("udaddy", "10 and 64 services; RDMA_PS_IPOIB", "udaddy.", "CM"),
    Row("mckey", "two receivers and a sender; RDMA_PS_IPOIB", "mckey.", "CM"),
    Row("cmtime", "1,000 connections", "cmtime."),
    Row("rdma_server, rdma_client", "", "rdma_client."),
    Row("rdma_xserver, rdma_xclient", "RC (`-c r`); XRC in RDMA_PS_IB (`-c x`); IPv4: the server listens nowhere else", "rdma_xclient."),
]
MISSING = [
    Missing("mckey", "IPv6", "RoCEv2 has IPv4 groups only, as with Linux"),
]

# What differs by path is the address and the packet size; what takes long need not be done on all of them.
LONG = (("loopback4", "root"), ("loopback4", "user"), ("veth4", "root"), ("veth6", "user"))

CASES = {}
for kind in PATHS:
    for user in ("root", "user"):
        for name, function in (("rping", rping_sizes), ("rping_many", rping_many), ("ucmatose", ucmatose_many),
                               ("ucmatose_migrate", ucmatose_migrate), ("cmtime", cmtime_many), ("udaddy", udaddy_many),
                               ("rdma_client", rdma_client_case), ("small", everything_small)):
            case = on_path(function, kind, user)
            if (function is not rping_many or (kind, user) in LONG) and (function is not everything_small or case.short):
                CASES[f"{name}.{kind}.{user}"] = case

for kind, user in (("loopback4", "root"), ("own", "user"), ("veth4", "root")):
    CASES[f"rdma_xclient.{kind}.{user}"] = on_path(rdma_xclient_both, kind, user)

# Multicast is IPv4's with RoCEv2. Each run of mckey sleeps for five seconds.
for kind, user in (("veth4", "root"), ("loopback4", "user")):
    CASES[f"mckey.{kind}.{user}"] = on_path(mckey_many, kind, user)
CASES["mckey.veth4.root"].short = True
