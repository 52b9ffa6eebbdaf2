"""What the programs that run tests have in common: the tests' names, the arguments, the exit codes."""

import argparse
import pathlib
import types

import lab

EXIT_SKIPPED = 77


def collect(*modules: types.ModuleType) -> dict:
    """All tests of the modules, as MODULE.NAME."""
    return {f"{module.__name__}.{name}": case for module in modules for name, case in module.CASES.items()}


def argument_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "build",
                        help="the build tree (default: build/ of this source tree)")
    parser.add_argument("--list", action="store_true", help="print the names of all tests")
    parser.add_argument("name", nargs="*", help="tests to run; a prefix stands for all that begin so")
    return parser


def choose(parser: argparse.ArgumentParser, cases: dict, prefixes: tuple[str, ...]) -> list[str]:
    """The tests that begin so, in order. Ends the program where there are none."""
    chosen = [name for name in cases if name.startswith(prefixes)]
    if not chosen:
        parser.error("no such test; --list says what there is")
    return chosen


def can_run_here() -> bool:
    """Makes the process root of its namespaces; False after having said why not."""
    try:
        lab.become_root()
    except lab.Skipped as reason:
        print(f"SKIPPED: {reason}")
        return False
    return True
