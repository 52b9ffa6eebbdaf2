#!/usr/bin/env python3
"""Runs end-to-end tests: Debian's own RDMA programs over UCM, in network namespaces of their own.

    tests/clients/e2e.py --list              the names
    tests/clients/e2e.py rping.veth4.root    one, with the binaries in build/
    tests/clients/e2e.py --build build-asan life.daemon_killed

Exit code 0: passed; 77: cannot run here, with the reason; anything else: failed, with the programs' outputs.
"""

import argparse
import pathlib
import sys
import time

import faults
import lab
import life
import own
import programs
import wire

EXIT_SKIPPED = 77

CASES = {}
for module in (programs, own, faults, life, wire):
    CASES.update({f"{module.__name__}.{name}": case for name, case in module.CASES.items()})


def run(name: str, build: pathlib.Path) -> int:
    started = time.monotonic()
    try:
        with lab.Lab(build) as space:
            CASES[name](space)
    except lab.Skipped as reason:
        print(f"SKIPPED {name}: {reason}")
        return EXIT_SKIPPED
    except lab.Failure as failure:
        print(f"FAILED {name}: {failure}")
        return 1
    print(f"passed {name} ({time.monotonic() - started:.1f} s)")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="End-to-end tests of UCM")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "build",
                        help="the build tree (default: build/ of this source tree)")
    parser.add_argument("--list", action="store_true", help="print the names of all tests")
    parser.add_argument("--list-sanitized", action="store_true", help="print those that sanitizer builds run")
    parser.add_argument("name", nargs="*", help="tests to run; a prefix stands for all that begin so")
    arguments = parser.parse_args()
    if arguments.list or arguments.list_sanitized:
        names = [name for name, case in CASES.items() if arguments.list or case.sanitized]
        print("\n".join(names))
        return 0
    chosen = [name for name in CASES if any(name.startswith(prefix) for prefix in arguments.name)]
    if not chosen:
        parser.error("no such test; --list says what there is")
    try:
        lab.become_root()
    except lab.Skipped as reason:
        print(f"SKIPPED: {reason}")
        return EXIT_SKIPPED
    codes = [run(name, arguments.build.resolve()) for name in chosen]
    return next((code for code in codes if code not in (0, EXIT_SKIPPED)), max(codes))


if __name__ == "__main__":
    sys.exit(main())
