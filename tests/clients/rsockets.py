"""rsockets: Debian's rstream, riostream, rcopy and udpong as they are, and plain TCP programs over Debian's librspreload.so."""

import hashlib
import os
import random
import re
import shutil
import signal
import time

from catalogue import Missing, Row
from lab import Failure, Lab, Path, Skipped, wait_until
from programs import RUN_S, pair

RSTREAM_PORT = 7471  # of riostream, too
RCOPY_PORT = 7427
UDPONG_PORT = 7174
ECHOES_S = 15.0  # what takes a second where nobody else wants the processor
ATTEMPTS = 3
PRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
LOSS = ("--faults", "loss=1,seed=1")


def bind(path: Path) -> list[str]:
    return ["-b", path.bind_address]


def transfer_of(output: str, size: str, count: str) -> None:
    if not re.search(rf"^custom\s+{size}\s+{count}\s", output, re.MULTILINE):
        raise Failure(f"no transfers of {size} were measured")


def stream(lab: Lab, path: Path, *options: str, program: str = "rstream", user: str = "root", **rest) -> list[str]:
    """Both directions; each side verifies what it receives. Returns both outputs."""
    common = [*options, "-T", "v"]
    running = pair(lab, path, [program, *bind(path), *common], [program, "-s", path.address, *common], RSTREAM_PORT, user,
                   **rest)
    return [side.succeed(RUN_S) for side in reversed(running)]


# Waiting by spinning, in poll and in the calls themselves; messages that fit a packet, that do not, and that do not fit buffers.
WAYS = {"spinning": (), "polling": ("-T", "a"), "blocking": ("-T", "b"), "polling_blocking": ("-T", "a", "-T", "b")}


# Field case 9.05
def rstream(lab: Lab, path: Path, user: str = "root", **rest):
    for options in WAYS.values():
        for output in stream(lab, path, *options, "-S", "1000", "-C", "50", "-I", "4", user=user, **rest):
            transfer_of(output, "1000", "50")
    stream(lab, path, "-S", "1", "-C", "500", "-I", "2", user=user, **rest)
    stream(lab, path, "-S", "3000001", "-C", "2", "-B", "10000", user=user, **rest)
    stream(lab, path, "-S", "100000", "-C", "20", "-T", "r", "-k", "1", user=user, **rest)


def riostream(lab: Lab, path: Path, user: str = "root", **rest):
    """It spins on its memory, without a call: few rounds, or it takes minutes where processors are few."""
    for options in (WAYS["spinning"], WAYS["polling_blocking"]):
        stream(lab, path, *options, "-S", "5000", "-C", "10", "-I", "5", program="riostream", user=user, **rest)
        stream(lab, path, *options, "-S", "1000000", "-C", "2", "-I", "2", program="riostream", user=user, **rest)


def rcopy(lab: Lab, path: Path, user: str = "root", size: int = 5_000_001, **rest):
    """Its host ends at the first colon, so IPv4 only."""
    source, target = lab.directory / "source", lab.directory / f"target.{user}"
    source.write_bytes(random.Random(1).randbytes(size))
    source.chmod(0o644)
    server, client = pair(lab, path, ["rcopy"], ["rcopy", str(source), f"{path.address}:{target}"], RCOPY_PORT, user, **rest)
    client.succeed(RUN_S)
    server.expect(r"done")
    if hashlib.sha256(source.read_bytes()).digest() != hashlib.sha256(target.read_bytes()).digest():
        raise Failure("the copied file differs")
    server.end()


def count_packets(lab: Lab, path: Path, user: str) -> int:
    match = re.search(r"^\s*packets\s+(\d+)$", lab.status(path.server, user), re.MULTILINE)
    return int(match.group(1)) if match else 0


def lost_its_message(lab: Lab, path: Path, client, user: str) -> bool:
    """Whether udpong's client is where it never ends (MISSING says why): datagrams go back and forth, and will for ever."""
    wait_until(lambda: not client.running() or time.monotonic() > client.started + ECHOES_S, "the client's end", 2 * ECHOES_S)
    before = count_packets(lab, path, user)
    wait_until(lambda: not client.running() or count_packets(lab, path, user) > before + 100, "datagrams on their way")
    return client.running()


def datagrams(lab: Lab, path: Path, *options: str, user: str = "root", echo: bool = True, size: int = 1000, count: int = 200,
              **rest):
    """udpong's client repeats a datagram until its echo comes; without echoes the server counts what has come."""
    options = (*options, *(("-T", "e") if echo else ()), "-S", str(size), "-C", str(count))
    for _ in range(ATTEMPTS):
        server = lab.ucm_run(path.server, "udpong", *bind(path), *options, user=user, **rest)
        wait_until(lambda: f":{UDPONG_PORT} " in path.server.run("ss", "-Hlun"), "a UDP socket")
        client = lab.ucm_run(path.client, "udpong", "-s", path.address, *options, user=user, **rest)
        if not lost_its_message(lab, path, client, user):
            break
        client.end()
        server.end()
    output = client.succeed(RUN_S)
    match = re.search(r"^custom\s+\S+\s+(\d+)\s", output, re.MULTILINE)
    if not match or int(match.group(1)) == 0 or (echo and int(match.group(1)) != 2 * count):
        raise Failure("udpong did not tell of its datagrams")
    if not server.running():
        raise Failure("the udpong server ended")
    server.end()


def udpong(lab: Lab, path: Path, user: str = "root", **rest):
    for options in WAYS.values():
        datagrams(lab, path, *options, user=user, **rest)
    datagrams(lab, path, echo=False, count=500, user=user, **rest)
    # Too long for a packet between QPs over Ethernet: by UDP, and from there in fragments.
    datagrams(lab, path, size=1900, user=user, **rest)
    datagrams(lab, path, size=16, user=user, **rest)


def small(lab: Lab, path: Path, user: str = "root", **rest):
    """Everything once with little data: for the slow builds, and where datagrams are lost."""
    stream(lab, path, "-S", "1000", "-C", "50", user=user, **rest)
    stream(lab, path, "-S", "200000", "-C", "4", "-T", "b", user=user, **rest)
    stream(lab, path, "-S", "5000", "-C", "10", "-T", "a", "-T", "b", user=user, **rest)
    stream(lab, path, "-S", "20000", "-C", "2", "-I", "2", program="riostream", user=user, **rest)
    if ":" not in path.address:
        rcopy(lab, path, user=user, size=300_001, **rest)


def small_with_datagrams(lab: Lab, path: Path, user: str):
    small(lab, path, user)
    datagrams(lab, path, count=20, user=user)


def small_with_loss(lab: Lab, path: Path, user: str):
    """No udpong: MISSING says why."""
    small(lab, path, user, options=LOSS)


def count_connections(lab: Lab, path: Path) -> int:
    match = re.search(r"^\s*connects\s+(\d+)$", lab.status(path.client), re.MULTILINE)
    return int(match.group(1)) if match else 0


def preloaded(lab: Lab) -> list[str]:
    if not os.path.exists(PRELOAD):
        raise Skipped(f"there is no {PRELOAD}")
    if lab.sanitizer:
        raise Skipped("a preloaded library takes the calls of the sanitizer's runtime, too")
    return ["env", f"LD_PRELOAD={PRELOAD}"]


def preload(lab: Lab, path: Path, user: str):
    """rstream's own TCP mode: socket, poll, send, recv, and fcntl, through the preloaded library."""
    library = preloaded(lab)
    for options in WAYS.values():
        before = count_connections(lab, path)
        common = ["-T", "s", *options, "-S", "10000", "-C", "50", "-T", "v"]
        running = pair(lab, path, [*library, "rstream", *bind(path), *common],
                       [*library, "rstream", "-s", path.address, *common], RSTREAM_PORT, user)
        for side in reversed(running):
            transfer_of(side.succeed(RUN_S), "9.7k", "50")
        if count_connections(lab, path) != before + 1:
            raise Failure("the data took another way than an rsocket")


def preload_fork(lab: Lab, path: Path, user: str):
    """A server that forks for each connection: the preloaded library makes the rsocket in the child."""
    library = [*preloaded(lab), "RDMAV_FORK_SAFE=1"]
    common = ["-S", "10000", "-C", "50", "-T", "v"]
    # The library's semaphore, which outlives the programs, in a /dev/shm that does not.
    own_shm = ["unshare", "--mount", "sh", "-ec", 'mount -t tmpfs tmpfs /dev/shm; exec "$@"', "sh"]
    server = lab.ucm_run(path.server, *own_shm, *library, "rstream", *bind(path), "-T", "f", *common)
    server_port = f":{RSTREAM_PORT}"
    wait_until(lambda: server_port in path.server.run("ss", "-Hltn"), "a TCP listener")
    client = lab.ucm_run(path.client, *library, "rstream", "-s", path.address, "-T", "s", *common)
    for side in (client, server):
        transfer_of(side.succeed(RUN_S), "9.7k", "50")
    if count_connections(lab, path) != 1:
        raise Failure("the data took another way than an rsocket")


def preload_curl(lab: Lab, path: Path, user: str):
    """A plain TCP client and a plain TCP server that know nothing of rsockets."""
    if not shutil.which("curl"):
        raise Skipped("curl is not installed: scripts/setup.sh test")
    library = preloaded(lab)
    source, target = lab.directory / "source", lab.directory / "target"
    source.write_bytes(random.Random(2).randbytes(3_000_001))
    server = lab.ucm_run(path.server, *library, lab.executable("tcp_file_server"), path.bind_address, "8080", str(source))
    lab.wait_listening(path.server, 8080)
    host = f"[{path.address}]" if ":" in path.address else path.address
    for _ in range(3):
        lab.ucm_run(path.client, *library, "curl", "--silent", "--show-error", "--output", str(target), f"http://{host}:8080/").succeed(
            RUN_S)
        if source.read_bytes() != target.read_bytes():
            raise Failure("what curl has fetched differs")
        target.unlink()
    if count_connections(lab, path) != 3:
        raise Failure("the data took another way than an rsocket")
    server.end()


def preload_falls_back(lab: Lab, path: Path, user: str):
    """Where nobody listens with rsockets, the preloaded library connects by TCP."""
    common = ["-T", "s", "-T", "b", "-S", "10000", "-C", "50", "-T", "v"]
    server = lab.start(path.server, "rstream", *bind(path), *common)
    wait_until(lambda: f":{RSTREAM_PORT}" in path.server.run("ss", "-Hltn"), "a TCP listener")
    lab.ucm_run(path.server, "true").succeed()  # a node that refuses
    client = lab.ucm_run(path.client, *preloaded(lab), "rstream", "-s", path.address, *common)
    for side in (client, server):
        transfer_of(side.succeed(RUN_S), "9.7k", "50")


def nobody_listens(lab: Lab, path: Path, user: str):
    lab.ucm_run(path.server, "true").succeed()
    client = lab.ucm_run(path.client, "rstream", "-s", path.address, "-T", "b", "-S", "10")
    client.expect("rconnect: Connection refused")
    # Without waiting, poll() tells and SO_ERROR says why.
    client = lab.ucm_run(path.client, "rstream", "-s", path.address, "-S", "10")
    client.expect("rpoll")
    if client.wait() == 0:
        raise Failure("rstream succeeded without a server")


def node_killed(lab: Lab, path: Path, user: str):
    """Nobody waits for ever: neither for a connection nor for data."""
    calls = lab.executable("rsocket_calls")
    waiting = lab.ucm_run(path.server, calls, path.bind_address, "accept-for-ever")
    receiving = lab.ucm_run(path.server, calls, path.bind_address, "receive-for-ever")
    for program in (waiting, receiving):
        program.expect("waiting")
    path.server.kill_node()
    waiting.expect("raccept: Network is down")
    receiving.expect("rrecv: Connection reset by peer")


def case(function, kind: str, user: str, short: bool = False):
    def run(lab: Lab):
        function(lab, lab.path(kind), user)

    run.short = short
    return run


PACKAGES = {"rdmacm-utils": "44.0", "librdmacm1": "44.0"}
ROWS = [
    Row("rstream", "as a user's program is: blocking, not blocking, with poll; 1 byte to megabytes, checked", "rstream."),
    Row("riostream", "the same by riowrite()", "riostream."),
    Row("udpong", "datagrams, echoed", "udpong.", "CM"),
    Row("rcopy", "a file, compared", "rcopy."),
    Row("librspreload.so", "rstream's TCP mode on rsockets, also over fork()", "preload"),
    Row("librspreload.so", "curl, with a plain TCP server of our own", "preload_curl"),
    Row("librspreload.so", "back to TCP where nobody listens with rsockets", "preload_falls_back"),
    Row("rstream, riostream, rcopy", "1 % of the datagrams lost", "bad_network"),
]
MISSING = [
    Missing("udpong", "where its datagrams get lost, or a queue overflows on a busy host", "its client takes answers into the "
            "buffer that it sends from: after a late one it repeats the message before, and when its own was lost waits for ever; "
            "so it does with plain UDP sockets (`-T s`). The test then runs it again"),
    Missing("udpong", "with a Linux peer", "rdma-core 44's datagram sockets fail over RoCE, between two Linux hosts, too"),
    Missing("librspreload.so", "programs that open sockets with SOCK_CLOEXEC or SOCK_NONBLOCK, as Python does",
            "version 44 does not take their accept4() and epoll: they stay with TCP"),
]

CASES = {f"{function.__name__}.{kind}.{user}": case(function, kind, user)
         for function in (rstream, riostream, udpong)
         for kind, user in (("loopback4", "root"), ("loopback6", "user"), ("veth4", "root"), ("veth6", "root"))}
CASES |= {f"rcopy.{kind}.{user}": case(rcopy, kind, user) for kind, user in (("loopback4", "user"), ("veth4", "root"))}
CASES |= {f"small.{kind}.{user}": case(small_with_datagrams, kind, user, kind in ("loopback4", "veth6"))
          for kind, user in (("loopback4", "root"), ("veth6", "root"), ("own", "user"), ("link_local", "root"))}
CASES |= {f"bad_network.{kind}": case(small_with_loss, kind, "root", kind == "veth4") for kind in ("loopback6", "veth4")}
CASES |= {f"preload.{kind}": case(preload, kind, "root") for kind in ("loopback4", "veth6")}
CASES |= {f"preload_curl.{kind}": case(preload_curl, kind, "root") for kind in ("veth4", "veth6")}
CASES["preload_fork"] = case(preload_fork, "veth4", "root")
CASES |= {f"preload_falls_back.{kind}": case(preload_falls_back, kind, "root") for kind in ("veth4", "veth6")}
CASES["node_killed"] = case(node_killed, "loopback4", "root", True)
CASES["nobody_listens"] = case(nobody_listens, "loopback4", "root", True)
