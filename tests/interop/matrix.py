"""Every program of Debian's that uses rdma_cm, between UCM and Linux, in both directions."""

import functools

from guest import PATHS, InteropLab
from lab import Failure, Path, Program
from programs import RUN_S, cmtime, pair, rdma_client, rping, rping_many, ucmatose, udaddy
from rsockets import stream

PERFTEST_PORT = 18515
PERFTEST_COUNT = 50
PERFTEST_TRIES = 10


def rping_sizes(lab: InteropLab, path: Path):
    for size in ("64", "4096", "65535"):
        rping(lab, path, "-v", "-S", size, count=20)
    rping(lab, path, "-q", "-S", "1000", count=20)


def rping_32(lab: InteropLab, path: Path):
    rping_many(lab, path, clients=32, count=10)


def ucmatose_100(lab: InteropLab, path: Path):
    ucmatose(lab, path, "-c", "100", "-C", "10", "-S", "4096")


def udaddy_sizes(lab: InteropLab, path: Path):
    udaddy(lab, path, "-c", "10", "-C", "10", "-S", "1024")
    udaddy(lab, path, "-c", "1", "-C", "1", "-S", "1")


def cmtime_100(lab: InteropLab, path: Path):
    cmtime(lab, path, "-c", "100")


def rdma_client_once(lab: InteropLab, path: Path):
    rdma_client(lab, path)


def rstream(lab: InteropLab, path: Path):
    stream(lab, path, "-S", "1000", "-C", "50")
    stream(lab, path, "-S", "3", "-C", "500", "-T", "b")
    stream(lab, path, "-S", "500001", "-C", "4", "-B", "10000")
    stream(lab, path, "-S", "100000", "-C", "4", "-T", "b", "-k", "1")
    if path.client is lab.host:
        # rdma-core's rpoll says POLLHUP as soon as the server has closed, and then rstream leaves its last data unread.
        stream(lab, path, "-S", "100000", "-C", "4", "-T", "a", "-T", "b")


def riostream(lab: InteropLab, path: Path):
    stream(lab, path, "-S", "5000", "-C", "4", "-I", "4", program="riostream")
    stream(lab, path, "-S", "300000", "-C", "2", "-I", "2", "-T", "b", program="riostream")


def perftest(lab: InteropLab, path: Path, program: str):
    """Both sides measure a few transfers over connections made by rdma_cm and print one line of figures."""
    common = [program, "-R", "-F", "-n", str(PERFTEST_COUNT)]
    for _ in range(PERFTEST_TRIES):
        server, client = pair(lab, path, common, [*common, path.address], PERFTEST_PORT, "root")
        # Over a first connection the server says that it is ready, but it listens for the second one only afterwards.
        if client.wait(RUN_S) == 0 or "RDMA_CM_EVENT_REJECTED; error: 8." not in client.output():
            break
        server.end()
    for side in (client, server):
        side.succeed(RUN_S)
    columns = figures(client)
    if int(columns[1]) != PERFTEST_COUNT or not float(columns[4]) > 0:
        raise Failure(f"{program} measured {columns}")


def figures(program: Program) -> list[str]:
    """The line below perftest's heading: bytes, iterations, peak and average bandwidth, message rate."""
    lines = program.output().splitlines()
    for heading, line in zip(lines, lines[1:]):
        if heading.lstrip().startswith("#bytes"):
            return line.split()
    raise Failure(f"{program.title}: no figures")


def on_path(function, kind: str):
    def case(lab: InteropLab):
        function(lab, lab.path(kind))

    return case


FUNCTIONS = {"rping": rping_sizes, "rping_32": rping_32, "ucmatose": ucmatose_100, "udaddy": udaddy_sizes, "cmtime": cmtime_100,
             "rdma_client": rdma_client_once, "rstream": rstream, "riostream": riostream}
CASES = {f"{name}.{kind}": on_path(function, kind) for name, function in FUNCTIONS.items() for kind in PATHS}
# With rdma_cm, Debian's perftest knows IPv4 only.
CASES |= {f"{program}.{kind}": on_path(functools.partial(perftest, program=program), kind)
          for program in ("ib_send_bw", "ib_read_bw", "ib_write_bw", "ib_atomic_bw") for kind in PATHS if kind.endswith("4")}
