"""Connections that are refused, and peers that go away, between UCM and Linux."""

import re
import signal

from guest import PATHS, InteropLab
from lab import Failure, Path, Program, wait_until
from programs import RUN_S, endless_rping, goes_on, rping

PORT = 7001


def connecting(path: Path) -> list[str]:
    return ["id a", f"resolved a {path.address} {PORT}", "qp a", "connect a"]


def listening(path: Path, backlog: int = 4) -> list[str]:
    return ["id l", f"bind l {path.bind_address} {PORT}", f"listen l {backlog}"]


def tells(program: Program, *lines: str) -> None:
    """The program succeeds and prints these lines, among others."""
    output = program.succeed(RUN_S).splitlines()
    for line in lines:
        if line not in output:
            raise Failure(f"{program.title} did not print '{line}'")


def start_node(lab: InteropLab, path: Path) -> None:
    """Somebody must be there to refuse."""
    lab.ucm_run(path.server, "true").succeed()


def no_listener(lab: InteropLab, path: Path):
    start_node(lab, path)
    tells(lab.calls(path.client, *connecting(path), "event a"), "event a: REJECTED 8 data=148:")


def rejected(lab: InteropLab, path: Path):
    """The program refuses with as much private data as fits."""
    server = lab.calls(path.server, *listening(path), "event l b", "reject b 148", "destroy b", "destroy l")
    lab.wait_listening(path.server, PORT)
    data = bytes(range(1, 149)).hex()
    tells(lab.calls(path.client, *connecting(path), "event a"), f"event a: REJECTED 28 data=148:{data}")
    tells(server, "reject b 148: 0")


def request_destroyed(lab: InteropLab, path: Path):
    server = lab.calls(path.server, *listening(path), "event l b", "destroy b")
    lab.wait_listening(path.server, PORT)
    tells(lab.calls(path.client, *connecting(path), "event a"), "event a: REJECTED 28 data=148:")
    tells(server, "destroy b: 0")


def wrong_address(lab: InteropLab, path: Path):
    """Nobody has it."""
    silent = re.sub(r"\d+$", "99", path.address)
    tells(lab.calls(path.client, "id a", f"resolve a {silent} {PORT} 1500", "event a"), "event a: ADDR_ERROR -110")


def full_backlog(lab: InteropLab, path: Path):
    """Requests beyond the backlog are not refused: they come again, and all are served once the program reads."""
    count = 5
    server = lab.calls(path.server, *listening(path, 2), "sleep 1500", f"serve l {count}")
    lab.wait_listening(path.server, PORT)
    ids = range(count)
    tells(lab.calls(path.client, *(command.replace(" a", f" a{i}", 1) for i in ids for command in connecting(path)),
                    *(f"event a{i}" for i in ids), *(f"disconnect a{i}" for i in ids), *(f"event a{i}" for i in ids)),
          *(f"event a{i}: DISCONNECTED 0" for i in ids))
    tells(server, f"serve l {count}: {count} accepted, {count} established")


def connections(lab: InteropLab) -> tuple[int, int]:
    """How many rdma_cm IDs Linux has, and how many connections UCM counts."""
    status = lab.status(lab.host)
    return len(lab.guest.identifiers()), len(re.findall(r"\bESTABLISHED +QP ", status, re.IGNORECASE))


def nothing_left(lab: InteropLab) -> None:
    wait_until(lambda: connections(lab) == (0, 0), "all connections gone on both sides")


def kill_and_expect_the_end(lab: InteropLab, victim, survivor):
    victim.signal(signal.SIGKILL)
    survivor.expect("DISCONNECT EVENT")
    survivor.wait()
    nothing_left(lab)


def client_killed(lab: InteropLab, path: Path):
    server, client = endless_rping(lab, path)
    kill_and_expect_the_end(lab, victim=client, survivor=server)


def server_killed(lab: InteropLab, path: Path):
    server, client = endless_rping(lab, path)
    kill_and_expect_the_end(lab, victim=server, survivor=client)


def ucmd_killed(lab: InteropLab, path: Path):
    """Neither side notices: the next ucmd goes on, also when the connection ends."""
    server, client = endless_rping(lab, path)
    lab.host.kill_daemon()
    goes_on(client)
    kill_and_expect_the_end(lab, victim=client, survivor=server)


def node_killed(lab: InteropLab, path: Path):
    """UCM's program hears of it; Linux' cannot know, but can be ended. Afterwards all works as before."""
    server, client = endless_rping(lab, path)
    ours, theirs = (client, server) if path.client is lab.host else (server, client)
    lab.host.kill_node()
    ours.wait()
    theirs.end()
    wait_until(lambda: not lab.guest.identifiers(), "Linux' connection gone")
    rping(lab, path, count=10)
    nothing_left(lab)


def on_path(function, kind: str):
    def case(lab: InteropLab):
        function(lab, lab.path(kind))

    return case


CASES = {f"{function.__name__}.{kind}": on_path(function, kind) for kind in PATHS for function in (
    no_listener, rejected, request_destroyed, wrong_address, full_backlog, client_killed, server_killed, ucmd_killed, node_killed)}
