#!/usr/bin/env python3
"""Shows Debian's own RDMA programs connecting and moving data over UCM, on a machine without RDMA hardware.

Where network namespaces can be made (root, or an ordinary user who may have a user namespace) the programs talk across
a virtual cable between two of them, each with its own ucmd; elsewhere over 127.0.0.1. Whatever is started here is ended
here. Exit code 0 only if every program succeeded.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/clients"))

import lab  # noqa: E402
import programs  # noqa: E402

BAD_NETWORK = ("--faults", "loss=5,duplicate=2,reorder=2,seed=1")


class Here:
    """The machine's own network namespace, for users who can make none."""

    name = "here"

    def enter(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


def scenarios(paths: dict[str, lab.Path]):
    """Program, what it does, and the function that does it and may return a remark."""
    first = next(iter(paths.values()))
    last = list(paths.values())[-1]

    def rping(path, size, count, **rest):
        return lambda space: programs.rping(space, path, "-S", str(size), count=count, **rest)

    def cmtime(space):
        table = programs.cmtime(space, first, "-c", "1000")
        per_connection = re.search(r"^connect\s*:.*?([\d.]+)\s*$", table, re.MULTILINE)
        return f"{per_connection.group(1)} µs per connect"

    yield "rping", "1,000 verified round trips of 64 bytes", rping(first, 64, 1000)
    yield "rping", "200 verified round trips of 64 KiB", rping(last, 65535, 200)
    yield "rping -q", "the same with a queue pair of its own", rping(first, 1000, 500)
    yield "ucmatose", "500 connections, 50 messages of 4 KiB on each", lambda space: programs.ucmatose(
        space, last, "-c", "500", "-C", "50", "-S", "4096")
    yield "udaddy", "64 datagram services, 10 messages each way", lambda space: programs.udaddy(
        space, first, "-c", "64", "-C", "10", "-S", "1024")
    yield "cmtime", "1,000 connections at once, each step timed", cmtime
    yield "rdma_client", "one message there and one back", lambda space: programs.rdma_client(space, last)


def bad_network(path: lab.Path):
    yield "rping", "round trips while 5 % of all packets are lost", lambda space: programs.rping(
        space, path, "-S", "4096", count=100, options=BAD_NETWORK)


def run_all(space: lab.Lab, list_of_scenarios) -> list[tuple[str, str, bool, float, str]]:
    rows = []
    for program, deed, function in list_of_scenarios:
        print(f"  {program:<12} {deed:<48}", end=" ", flush=True)
        started = time.monotonic()
        try:
            remark, good = function(space) or "", True
        except lab.Failure as failure:
            remark, good = str(failure), False
        seconds = time.monotonic() - started
        print(f"{'ok' if good else 'FAILED':<6} {seconds:5.1f} s  {remark}")
        rows.append((program, deed, good, seconds, remark))
        if not good:
            space.tell_outputs()
    return rows


def between_namespaces(space: lab.Lab):
    a, b = space.veth_pair()
    print("Two network namespaces, a virtual cable between them, a ucmd in each, and no RDMA hardware:\n")
    rows = run_all(space, scenarios({"IPv4": lab.Path(a, b, "10.77.0.1", "10.77.0.1"),
                                     "IPv6": lab.Path(a, b, "fd77::1", "fd77::1")}))
    print("\nThe same on a bad network:\n")
    return rows + run_all(space, bad_network(space.path("veth4")))


def over_loopback(space: lab.Lab):
    print("No network namespace can be made here (as root: sudo make demo), so over 127.0.0.1:\n")
    here = Here()
    was_running = space.ucm(here, "status").wait() == 0
    try:
        return run_all(space, scenarios({"IPv4": lab.Path(here, here, "127.0.0.1", "127.0.0.1")}))
    finally:
        if not was_running:
            space.ucm(here, "stop").wait()


def can_make_namespaces() -> bool:
    return os.geteuid() == 0 and subprocess.run(
        ["unshare", "--net", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def tell(rows) -> None:
    width = max(len(deed) for _, deed, *_ in rows)
    print(f"\n{'program':<12} {'what it did':<{width}} {'result':<7} {'time':>7}")
    for program, deed, good, seconds, _ in rows:
        print(f"{program:<12} {deed:<{width}} {'ok' if good else 'FAILED':<7} {seconds:5.1f} s")
    print(f"""
What to try next (a server in one terminal, its client in another):
  build/bin/ucm run -- rping -s -v                    any RDMA program of yours takes rping's place
  build/bin/ucm run -- rping -c -a 127.0.0.1 -v -C 5
  build/bin/ucm status                                devices, listeners and connections
  build/bin/ucm --help
  make test                                           everything above, and much more, as tests""")


def main() -> int:
    try:
        lab.become_root()
    except lab.Skipped:
        pass  # over loopback, then
    try:
        with lab.Lab(ROOT / "build") as space:
            rows = between_namespaces(space) if can_make_namespaces() else over_loopback(space)
    except (lab.Skipped, lab.Failure) as reason:
        print(f"demo: {reason}")
        return 1
    tell(rows)
    return 0 if all(good for _, _, good, *_ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
