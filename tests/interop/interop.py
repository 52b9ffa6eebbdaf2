#!/usr/bin/env python3
"""Runs the tests of UCM against a stock Linux kernel in a virtual machine.

    tests/interop/interop.py --list           the names
    tests/interop/interop.py matrix.rping     those that begin so, one after the other in one machine
    tests/interop/interop.py core             a selection of all

Exit code 0: passed; 77: cannot run here, with the reason; anything else: failed, with the programs' outputs.
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))

import conformance
import devices
import guest
import harness
import lab
import link
import loss
import many
import matrix
import parameters
import refusals
import runner
import slow

# conformance first: its probe needs the port that UCM's daemon takes in the same namespace.
CASES = runner.collect(harness, conformance, matrix, refusals, loss, slow, many, parameters, link, devices)

# What `make test` runs, too: every kind of test, and most programs, in a few minutes.
CORE = ("harness.", "conformance.core", "matrix.rping.", "matrix.ucmatose.", "matrix.rdma_client.", "matrix.udaddy.",
        "matrix.rstream.from_linux4", "matrix.riostream.to_linux6",
        "matrix.cmtime.from_linux4", "matrix.ib_read_bw.to_linux4", "matrix.ib_send_bw.from_linux4",
        "refusals.no_listener.", "refusals.rejected.", "refusals.client_killed.from_linux4", "refusals.server_killed.to_linux6",
        "loss.loss1.to_linux4", "loss.loss1.from_linux6", "devices.chosen", "devices.rping.own4", "devices.ucmatose.to_linux4",
        "devices.udaddy.from_linux6")


def run(name: str, space: guest.InteropLab) -> None:
    started = time.monotonic()
    shown = len(space.programs)
    CASES[name](space)
    for program in space.programs[shown:]:
        program.end()
    del space.programs[shown:]  # a later failure is not their matter
    print(f"passed {name} ({time.monotonic() - started:.1f} s)", flush=True)


def run_all(names: list[str], build: pathlib.Path) -> int:
    name = "boot"
    try:
        with guest.InteropLab(build) as space:
            started = time.monotonic()
            space.boot()
            print(f"the virtual machine runs ({time.monotonic() - started:.1f} s)", flush=True)
            for name in names:
                run(name, space)
    except lab.Skipped as reason:
        print(f"SKIPPED {', '.join(names)}: {reason}")
        return runner.EXIT_SKIPPED
    except lab.Failure as failure:
        print(f"FAILED {name}: {failure}")
        return 1
    return 0


def main() -> int:
    parser = runner.argument_parser("Tests of UCM against a Linux kernel")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return 0
    chosen = runner.choose(parser, CASES, CORE if arguments.name == ["core"] else tuple(arguments.name))
    if not runner.can_run_here():
        return runner.EXIT_SKIPPED
    return run_all(chosen, arguments.build.resolve())


if __name__ == "__main__":
    sys.exit(main())
