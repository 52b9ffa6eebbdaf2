"""Debian's perftest, as it is. Each run costs the two seconds in which it measures the clock of the processor: so a row
has several modes at once where they do not hide one another."""

import re

from catalogue import Missing, Row, cases
from lab import Failure, Lab, Path
from verbs_utils import wait_tcp

PACKAGES = {"perftest": "4.5+0.17"}
EXCHANGE_PORT = 18515  # TCP or, with -R, RDMA
RUN_S = 90.0
# With -R Debian's client connects when it knows that the server is about to listen; when the server is not as quick, it
# is refused (as it would be by a kernel) and crashes. The second is the refusal of a datagram service.
REFUSED = r"RDMA_CM_EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)\b"
ATTEMPTS = 8
CLOCK_UNKNOWN = "Correlation coefficient"


def attempt(lab: Lab, path: Path, argv: list[str], options: tuple[str, ...]):
    server = lab.ucm_run(path.server, *argv, "-d", "ucm_veth_a", options=options)
    if "-R" in argv:
        lab.wait_listening(path.server, EXCHANGE_PORT)
    else:
        wait_tcp(lab, path, EXCHANGE_PORT)
    client = lab.ucm_run(path.client, *argv, "-d", "ucm_veth_b", path.address, options=options)
    if client.wait(RUN_S) != 0 and re.search(REFUSED, client.output()):
        server.end()
        return None
    return server, client


def perftest(program: str, arguments: str, count: int, size: int, options: tuple[str, ...] = ()):
    """Both sides succeed, and the client's line of results has the size, the number of messages and a rate or time above 0.
    -F: the processor's clock may change."""
    argv = [program, "-F", "-n", str(count), "-s", str(size), *arguments.split()]
    qps = int(re.search(r"-q (\d+)|$", arguments).group(1) or 1)

    def run(lab: Lab, path: Path):
        tries = (attempt(lab, path, argv, options) for _ in range(ATTEMPTS))
        server, client = next((both for both in tries if both), (None, None))
        if client is None:
            raise Failure(f"refused {ATTEMPTS} times")
        text = client.succeed(RUN_S)
        server.succeed()
        result = re.search(rf"^\s*{size}\s+{count * qps}\s+\S+\s+(\S+)", text, re.MULTILINE)
        if not result:
            raise Failure(f"{client.title}: no line of results")
        # On a busy machine it may say that it could not measure the clock; its figures then mean nothing.
        if CLOCK_UNKNOWN not in text and not float(result.group(1)) > 0:
            raise Failure(f"{client.title}: {result.group(0)}")

    return run


def row(group: str, program: str, mode: str, arguments: str, count: int, size: int, options: tuple[str, ...] = ()) -> Row:
    shown = f"{mode} (`{arguments}`)" if arguments else mode
    unreliable = re.search(r"-c U[CD]", arguments)
    return Row(program, shown, group, "CM" if unreliable else "all", perftest(program, arguments, count, size, options))


LOSS = ("--faults", "loss=1,seed=1")

ROWS = [
    row("send", "ib_send_bw", "RC, 16 QPs, both directions", "-q 16 -b", 50, 4096),
    row("send", "ib_send_bw", "RC, rdma_cm, SRQ, completion events, 4 QPs", "-R --use-srq -e -q 4", 100, 16384),
    row("send", "ib_send_bw", "UC, both directions", "-c UC -b", 200, 2048),
    row("send", "ib_send_bw", "UD, rdma_cm", "-c UD -R", 500, 1024),
    row("send", "ib_send_lat", "RC, completion events", "-e", 300, 2),
    row("send", "ib_send_lat", "UC", "-c UC", 300, 2000),
    row("send", "ib_send_lat", "UD", "-c UD", 300, 64),
    row("write", "ib_write_bw", "RC, rdma_cm, 16 QPs", "-R -q 16", 50, 4096),
    row("write", "ib_write_bw", "UC, both directions", "-c UC -b", 200, 4096),
    row("write", "ib_write_bw", "RC, both directions", "-b", 100, 65536),
    row("write", "ib_write_lat", "RC, rdma_cm", "-R", 100, 2),
    row("write", "ib_write_lat", "UC", "-c UC", 100, 500),
    row("read_atomic", "ib_read_bw", "RC, 16 QPs, completion events", "-q 16 -e", 50, 4096),
    row("read_atomic", "ib_read_bw", "RC, rdma_cm, both directions", "-R -b", 100, 65536),
    row("read_atomic", "ib_read_lat", "RC, rdma_cm, completion events", "-R -e", 300, 64),
    row("read_atomic", "ib_atomic_bw", "fetch and add, rdma_cm, 4 QPs", "-R -q 4", 100, 8),
    row("read_atomic", "ib_atomic_bw", "compare and swap, both directions", "-A CMP_AND_SWAP -b", 200, 8),
    row("read_atomic", "ib_atomic_lat", "fetch and add", "", 300, 8),
    row("xrc", "ib_send_bw", "XRC, 4 QPs, completion events", "-c XRC -q 4 -e", 100, 4096),
    row("xrc", "ib_send_bw", "XRC, both directions", "-c XRC -b", 100, 4096),
    row("xrc", "ib_send_lat", "XRC", "-c XRC", 300, 64),
    row("xrc", "ib_write_bw", "XRC, 4 QPs, both directions", "-c XRC -q 4 -b", 100, 16384),
    row("xrc", "ib_read_lat", "XRC", "-c XRC", 300, 64),
    row("xrc", "ib_atomic_lat", "XRC, compare and swap", "-c XRC -A CMP_AND_SWAP", 300, 8),
    row("small", "ib_send_bw", "RC, SRQ", "--use-srq -q 2", 50, 4096),
    row("small", "ib_write_bw", "UC", "-c UC", 50, 1000),
    row("bad_network", "ib_send_bw", "RC, 1 % of the packets lost", "-q 4", 50, 8192, LOSS),
    row("bad_network", "ib_send_bw", "XRC, 1 % of the packets lost", "-c XRC -q 4", 50, 8192, LOSS),
    row("bad_network", "ib_read_bw", "RC, 1 % of the packets lost", "-R", 50, 65536, LOSS),
]
MISSING = [
    Missing("all", "-c XRC -R", "perftest refuses: \"XRC does not support RDMA_CM\""),
    Missing("all", "-c DC", "of one vendor"),
    Missing("ib_send_bw, ib_write_bw", "-c UC -R", "rdma_cm connects RC only, the kernel's as well"),
    Missing("ib_write_bw, ib_write_lat", "-e", "perftest refuses: a WRITE tells its target nothing"),
    Missing("raw_ethernet_*", "", "no raw packet QPs: UCM's device is made of UDP sockets"),
]
CASES = cases(PACKAGES, ROWS, short=("small", "bad_network"))
