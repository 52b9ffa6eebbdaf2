"""Many connections, at once and one after the other; and that nothing of them stays on either side."""

import functools
import re

from guest import PATHS, InteropLab
from lab import Failure, Path, Program, wait_until
from programs import ucmatose
from refusals import PORT, connecting, listening

AT_ONCE = 500
CYCLES = 1000
QPN_BLOCK = 64  # numbers come in blocks
# An emulated processor makes some fifty connections a second.
CYCLES_S = 300.0


def linux_holds(lab: InteropLab) -> dict[str, int]:
    """How many objects of each kind rxe0 has."""
    summary = lab.guest.run("rdma resource show rxe0")
    return {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", summary.split(":", 2)[2])}


def ucm_holds(lab: InteropLab) -> dict[str, int]:
    """What `ucm status` says is held."""
    held = re.search(r"^Held(: all zero|\n(  .*\n)+)", lab.status(lab.host), re.MULTILINE)
    if held is None:
        raise Failure("`ucm status` does not say what is held")
    return {name: int(count) for name, count in re.findall(r"^  (\w+) +(\d+)$", held.group(), re.MULTILINE)}


def holds(lab: InteropLab, linux: dict[str, int], ucm: dict[str, int]) -> None:
    """Waits, because UCM's timewait lasts two seconds, until both sides hold this and nothing else."""
    last = None

    def as_expected() -> bool:
        nonlocal last
        last = linux_holds(lab), ucm_holds(lab)
        return last == (linux, ucm)

    try:
        wait_until(as_expected, "both sides hold what they should")
    except Failure as failure:
        raise Failure(f"{failure}: {last}, expected {(linux, ucm)}") from None


def nothing_stays(function):
    """Linux holds what it held before, and UCM nothing at all."""

    @functools.wraps(function)
    def case(lab: InteropLab, path: Path):
        lab.ucm_run(lab.host, "true").succeed()  # starts the daemon
        before = linux_holds(lab)
        function(lab, path)
        holds(lab, before, {})

    return case


@nothing_stays
def at_once(lab: InteropLab, path: Path):
    ucmatose(lab, path, "-c", str(AT_ONCE), "-C", "2", "-S", "100")


@nothing_stays
def cycles(lab: InteropLab, path: Path):
    """While the server lives, both sides hold its listener and nothing of its former connections. QP numbers that a program has
    had are its own until it ends: at most one for each connection, fewer where eight seconds pass, after which they are used
    again. A request that UCM has repeated may be another one to Linux, which hears from UCM that nobody wants that."""
    before = linux_holds(lab)
    server = lab.calls(path.server, *listening(path, 128), f"serve l {CYCLES}", "say served", "silence l 100000000")
    server.expect("^listen l 128: 0")
    listener = linux_holds(lab), ucm_holds(lab)
    client = lab.calls(path.client, f"repeat {CYCLES}", *connecting(path), "event a", "disconnect a", "event a", "destroy a")
    output = client.succeed(CYCLES_S)
    for line in ("event a: ESTABLISHED 0", "event a: DISCONNECTED 0", "destroy a: 0"):
        if output.count(line) != CYCLES:
            raise Failure(f"'{line}' {output.count(line)} times, not {CYCLES}")
    server.expect("^say served: served")
    taken = ucm_holds(lab).get("qpns", 0)
    if taken > CYCLES + QPN_BLOCK:
        raise Failure(f"the program holds {taken} QP numbers")
    linux, ucm = listener
    holds(lab, linux, ucm | ({"qpns": taken} if taken else {}))
    server.end()


def on_path(function, kind: str):
    def case(lab: InteropLab):
        function(lab, lab.path(kind))

    return case


CASES = {f"{function.__name__}.{kind}": on_path(function, kind) for function in (at_once, cycles) for kind in PATHS}
