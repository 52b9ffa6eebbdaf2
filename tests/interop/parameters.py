"""What a connection is made with: depths, retries, options, MTU. Each is asked for by UCM's program and answered by
Linux', and the other way round; both ways, both programs must be told the same."""

import contextlib
import re

from guest import PATHS, InteropLab
from lab import Failure, Path, wait_until
from programs import rping
from refusals import PORT

# Calls of the server, which has a listener {l}, and of the client. Each round has a listener of its own: Linux takes a request that
# UCM repeats for another one once the first is refused or over.
Round = tuple[list[str], list[str]]
Lines = list[str]

# What a connection goes through whose `accept` and `connect` are given.
QUERIED = ["event {l} b", "qp b", "{accept}", "query b", "event {l}", "event {l}", "disconnect b", "destroy b"]
QUERIES = ["qp a", "{connect}", "event a", "query a", "disconnect a", "event a", "destroy a"]

DEPTH_MAX = 128  # of rxe and of UCM's device
RUN_S = 300.0

# The ACK timeout follows from the life of a packet, which is another one in newer kernels than 6.1.
ACK_TIMEOUT = r"timeout=\d+"


def connection(connect: str = "connect a", accept: str = "accept b", *before: str) -> Round:
    return ([call.replace("{accept}", accept) for call in QUERIED],
            ["id a", *before, "resolved a {address} {port}", *(call.format(connect=connect) for call in QUERIES)])


def run_rounds(lab: InteropLab, path: Path, rounds: list[Round]) -> tuple[Lines, Lines]:
    """What the server and the client print."""
    numbers = range(len(rounds))
    server = lab.calls(path.server, *(call for n in numbers for call in (f"id l{n}", f"bind l{n} {path.bind_address} {PORT + n}", f"listen l{n} 4")),
                       *(call.replace("{l}", f"l{n}") for n, (calls, _) in enumerate(rounds) for call in calls))
    server.expect(f"^listen l{numbers[-1]} 4: 0")
    client = lab.calls(path.client, *(call.format(address=path.address, port=PORT + n) for n, (_, calls) in enumerate(rounds)
                                      for call in calls))
    told = client.succeed(RUN_S)
    return server.succeed(RUN_S).splitlines()[2 * len(rounds):], told.splitlines()


# What no two runs have in common.
OF_THE_RUN = r"(qpn|psn|flow_label|sgid_index)=\d+|dgid=\S+"


def of_call(lines: Lines, call: str) -> Lines:
    """The results of one kind of call, in order."""
    return [line.split(": ", 1)[1] for line in lines if line.startswith(call + " ")]


def both_ways(lab: InteropLab, rounds: list[Round], but_for: str = "^$") -> tuple[Lines, Lines]:
    """Runs the rounds in both directions and returns what the two programs print: the same, but for what is named."""
    told = [tuple([re.sub(f"{OF_THE_RUN}|{but_for}", "…", line) for line in lines] for lines in run_rounds(lab, lab.path(kind), rounds))
            for kind in ("to_linux4", "from_linux4")]
    for side, of_linux, of_ucm in (("server", told[0][0], told[1][0]), ("client", told[1][1], told[0][1])):
        for number, (theirs, ours) in enumerate(zip(of_linux, of_ucm)):
            if theirs != ours:
                raise Failure(f"the {side}'s line {number} is '{theirs}' on Linux, '{ours}' under UCM")
        if len(of_linux) != len(of_ucm):
            raise Failure(f"the {side} prints {len(of_linux)} lines on Linux, {len(of_ucm)} under UCM")
    return told[0]


def equal(what: str, found: Lines, expected: Lines) -> None:
    for number, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            raise Failure(f"{what} {number}: '{one}', not '{other}'")
    if len(found) != len(expected):
        raise Failure(f"{what}: {len(found)}, not {len(expected)}")


# Bytes of the program's own that fit into a message.
REQ_DATA, REP_DATA, REJ_DATA = 56, 196, 148


def data(size: int, shown: int) -> str:
    """Of an event: the bytes that were given, in a field that is always as long."""
    return f"data={shown}:{bytes(range(1, size + 1)).hex()}"


def private_data(lab: InteropLab):
    """Every length arrives, filled up with zeros; no call takes more than fits."""
    accepted = [(min(size, REQ_DATA), size) for size in range(REP_DATA + 1)]
    rounds = [connection(f"connect a data={asked}", f"accept b data={told}") for asked, told in accepted]
    rounds += [(["event {l} b", f"reject b {size}", "destroy b"],
                ["id a", "resolved a {address} {port}", "qp a", "connect a", "event a", "destroy a"]) for size in range(REJ_DATA + 1)]
    server, client = both_ways(lab, rounds, ACK_TIMEOUT)
    requests = [told.split()[2] for told in of_call(server, "event") if told.startswith("CONNECT_REQUEST")]
    equal("request", requests, [data(asked, REQ_DATA) for asked, _ in accepted] + [data(0, REQ_DATA)] * (REJ_DATA + 1))
    answers = [told for told in of_call(client, "event") if not told.startswith("DISCONNECTED")]
    equal("answer", [" ".join(told.split()[:3]) for told in answers],
          [f"ESTABLISHED 0 {data(told, REP_DATA)}" for _, told in accepted] +
          [f"REJECTED 28 {data(size, REJ_DATA)}" for size in range(REJ_DATA + 1)])


def private_data_too_long(lab: InteropLab):
    asking = ["id a", "resolved a {address} {port}", "qp a", f"connect a data={REQ_DATA + 1}", "connect a data=255", "connect a", "event a",
              "destroy a"]
    answering = ["event {l} b", "qp b", f"accept b data={REP_DATA + 1}", f"reject b {REJ_DATA + 1}", "reject b 0", "destroy b"]
    both_ways(lab, [(answering, asking)])


def depths(lab: InteropLab):
    """Every depth from 0 to the limit in either role. Linux' device rounds a QP's own up to a power of two; UCM's tells what it
    was given."""
    asked = range(DEPTH_MAX + 1)
    rounds = [connection(f"connect a rr={depth} depth={DEPTH_MAX - depth}", f"accept b rr={DEPTH_MAX - depth} depth={depth}")
              for depth in asked]
    both_ways(lab, rounds, f"{ACK_TIMEOUT}|rd_atomic=\\d+")


def depths_too_large(lab: InteropLab):
    asking = ["id a", "resolved a {address} {port}", "qp a", f"connect a rr={DEPTH_MAX + 1}", f"connect a depth={DEPTH_MAX + 1}",
              "connect a rr=254", "connect a depth=254", "connect a", "event a", "destroy a"]
    answering = ["event {l} b", "qp b", f"accept b rr={DEPTH_MAX + 1}", f"accept b depth={DEPTH_MAX + 1}", "reject b 0", "destroy b"]
    server, client = both_ways(lab, [(answering, asking)])
    equal("connect", of_call(client, "connect"), ["EINVAL"] * 4 + ["0"])
    equal("accept", of_call(server, "accept"), ["EINVAL"] * 2)


def retries(lab: InteropLab):
    """Counts beyond 7 are 7."""
    counts = (0, 1, 6, 7, 8, 15, 16, 255)
    rounds = [connection(f"connect a retry={count} rnr={counts[-1 - i]}", f"accept b rnr={count}")
              for i, count in enumerate(counts)]
    server, _ = both_ways(lab, rounds, ACK_TIMEOUT)
    equal("request", [re.search(r"retry=\d+ rnr=\d+", told).group() for told in of_call(server, "event")[::3]],
          [f"retry={min(count, 7)} rnr={min(counts[-1 - i], 7)}" for i, count in enumerate(counts)])


def type_of_service(lab: InteropLab):
    """The client's is both QPs'."""
    values = (0, 4, 0x20, 0xB8, 0xFF)
    rounds = [connection("connect a", "accept b", f"option a 0 0 {value} 1") for value in values]
    server, client = both_ways(lab, rounds, ACK_TIMEOUT)
    for side in (server, client):
        equal("query", [re.search(r"tclass=\d+", told).group() for told in of_call(side, "query")],
              [f"tclass={value}" for value in values])


def ack_timeout(lab: InteropLab):
    """The client's own QP gets what it asks for; the server's, what the request says for the path."""
    values = (1, 8, 14, 18, 20, 31)
    rounds = [connection("connect a", "accept b", f"option a 0 3 {value} 1") for value in values]
    _, client = both_ways(lab, rounds)
    equal("query", [re.search(ACK_TIMEOUT, told).group() for told in of_call(client, "query")],
          [f"timeout={value}" for value in values])


@contextlib.contextmanager
def link_mtu(lab: InteropLab, mtu: int):
    def set_to(size: int) -> None:
        lab.host.run("ip", "link", "set", "tap0", "mtu", str(size))
        lab.guest.run(f"ip link set eth0 mtu {size}")
        wait_until(lambda: re.search(rf"ucm_tap0 +MTU {size}\b", lab.status(lab.host)), f"MTU {size} at UCM")

    lab.ucm_run(lab.host, "true").succeed()  # starts the daemon
    set_to(mtu)
    try:
        yield
    finally:
        set_to(1500)


def mtu(lab: InteropLab):
    """Both QPs have the largest size that fits into the link's, and data of many packets arrives."""
    for link, path in ((1500, 1024), (4200, 4096), (2200, 2048)):
        with link_mtu(lab, link):
            told = both_ways(lab, [connection()], ACK_TIMEOUT)
            for side in told:
                equal("query", [re.search(r"mtu=\d+", line).group() for line in of_call(side, "query")], [f"mtu={path}"])
            for kind in PATHS:
                rping(lab, lab.path(kind), "-S", "30000", count=10)


CASES = {case.__name__: case for case in (private_data, private_data_too_long, depths, depths_too_large, retries, type_of_service, ack_timeout, mtu)}
