#!/usr/bin/env python3
"""Runs end-to-end tests: Debian's own RDMA programs over UCM, in network namespaces of their own.

    tests/clients/e2e.py --list                       the names
    tests/clients/e2e.py programs.rping.veth4.root    one, with the binaries in build/
    tests/clients/e2e.py --build build-asan life.node_killed
    tests/clients/e2e.py --loss 1 perftest        every node loses 1 % of what it receives

Exit code 0: passed; 77: cannot run here, with the reason; anything else: failed, with the programs' outputs.
"""

import pathlib
import re
import sys
import time
import zlib

import catalogue
import faults
import lab
import life
import look
import own
import packages
import perftest
import programs
import python_verbs
import rsockets
import runner
import service
import speed
import stacks
import survive
import verbs_utils
import wire

CATALOGUE = [programs, rsockets, verbs_utils, perftest, stacks, python_verbs]
CASES = runner.collect(*CATALOGUE, own, faults, life, look, packages, service, speed, survive, wire)
# What also runs where datagrams get lost: whatever moves data, over one path.
LOSSY = re.compile(r"programs\.\w+\.veth4\.root|programs\.small\.veth6\.root|rsockets\.(?!bad_network|preload_falls_back)\w+\.veth[46]"
                   r"(\.root)?|rsockets\.preload_fork|verbs_utils\.pingpong|perftest\.(?!bad_network)\w+|stacks\.\w+|python_verbs\.\w+|"
                   r"own\.(threads|channels|datagrams|rsockets)\.own")
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "programs.md"


def is_lossy(name: str) -> bool:
    return LOSSY.fullmatch(name) is not None


def ctests(sanitizer: str) -> list[str]:
    """NAME;LABELS;ARGUMENTS of what a build is tested with, labels and arguments between blanks. What is not short is not part of
    `make test` under a sanitizer and over loss, and what is `long` never is. Thread-sanitized builds run our own programs only:
    the sanitizer must be in all of a program's code."""
    names = [name for name in CASES if "thread" not in sanitizer or name.startswith("own.")]

    def is_long(name: str) -> bool:
        return getattr(CASES[name], "long", False) or (sanitizer != "" and not CASES[name].short)

    found = [f"e2e.{name};{'long' if is_long(name) else 'e2e'};{name}" for name in names]
    lossy = [name for name in names if is_lossy(name) and not sanitizer]
    return found + [f"loss.{name};faults {'e2e' if CASES[name].short else 'long'};--loss 1 {name}" for name in lossy]


def faults_of(name: str, loss: int) -> str:
    """What a network does to one test that loses `loss` percent. Each test loses other datagrams, always the same."""
    return f"loss={loss},spare-unreliable,seed={zlib.crc32(name.encode())}" if loss else ""


def run(name: str, build: pathlib.Path, loss: int) -> int:
    started = time.monotonic()
    try:
        with lab.Lab(build, faults_of(name, loss)) as space:
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
    parser.add_argument("--ctests", metavar="SANITIZER", help="print what ctest runs of a build, `none` or with a sanitizer")
    parser.add_argument("--loss", type=int, default=0, metavar="PERCENT", help="of the datagrams that a node receives, but "
                        "those of UC and UD QPs, which nobody would repeat")
    parser.add_argument("--document", action="store_true", help="print docs/programs.md")
    parser.add_argument("--check-document", action="store_true", help="compare it with what would be printed")
    arguments = parser.parse_args()
    if arguments.document:
        print(catalogue.document(CATALOGUE, CASES, is_lossy), end="")
        return 0
    if arguments.check_document:
        same = DOCUMENT.read_text() == catalogue.document(CATALOGUE, CASES, is_lossy)
        print("as printed" if same else f"tests/clients/e2e.py --document > {DOCUMENT}")
        return 0 if same else 1
    if arguments.list:
        print("\n".join(CASES))
        return 0
    if arguments.ctests:
        print("\n".join(ctests("" if arguments.ctests == "none" else arguments.ctests)))
        return 0
    chosen = runner.choose(parser, CASES, tuple(arguments.name))
    if not runner.can_run_here():
        return runner.EXIT_SKIPPED
    codes = [run(name, arguments.build.resolve(), arguments.loss) for name in chosen]
    return next((code for code in codes if code not in (0, runner.EXIT_SKIPPED)), max(codes))


if __name__ == "__main__":
    sys.exit(main())
