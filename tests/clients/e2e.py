#!/usr/bin/env python3
"""Runs end-to-end tests: Debian's own RDMA programs over UCM, in network namespaces of their own.

    tests/clients/e2e.py --list                       the names
    tests/clients/e2e.py programs.rping.veth4.root    one, with the binaries in build/
    tests/clients/e2e.py --build build-asan life.daemon_killed

Exit code 0: passed; 77: cannot run here, with the reason; anything else: failed, with the programs' outputs.
"""

import pathlib
import sys
import time

import faults
import lab
import life
import own
import programs
import rsockets
import runner
import wire

CASES = runner.collect(programs, own, faults, life, rsockets, wire)


def run(name: str, build: pathlib.Path) -> int:
    started = time.monotonic()
    try:
        with lab.Lab(build) as space:
            CASES[name](space)
    except lab.Skipped as reason:
        print(f"SKIPPED {name}: {reason}")
        return runner.EXIT_SKIPPED
    except lab.Failure as failure:
        print(f"FAILED {name}: {failure}")
        return 1
    print(f"passed {name} ({time.monotonic() - started:.1f} s)")
    return 0


def main() -> int:
    parser = runner.argument_parser("End-to-end tests of UCM")
    parser.add_argument("--list-sanitized", action="store_true", help="print those that sanitizer builds run")
    arguments = parser.parse_args()
    if arguments.list or arguments.list_sanitized:
        names = [name for name, case in CASES.items() if arguments.list or case.sanitized]
        print("\n".join(names))
        return 0
    chosen = runner.choose(parser, CASES, tuple(arguments.name))
    if not runner.can_run_here():
        return runner.EXIT_SKIPPED
    codes = [run(name, arguments.build.resolve()) for name in chosen]
    return next((code for code in codes if code not in (0, runner.EXIT_SKIPPED)), max(codes))


if __name__ == "__main__":
    sys.exit(main())
