"""What docs/programs.md is printed from: the rows of the tests themselves, and what is known not to work.

    tests/clients/e2e.py --document > docs/programs.md
"""

from __future__ import annotations

import dataclasses
import subprocess
import time
import types
import typing

from lab import Failure, Lab, Path, Skipped

HEADER = """# Programs that run on UCM

Debian 12's RDMA programs and libraries as they are, under `ucm run`. Every row is run by the end-to-end test it names
(`tests/clients/e2e.py NAME`), between two network namespaces or inside one, with real traffic and checked results.
Printed by `tests/clients/e2e.py --document`; a test compares.

"1 % lost": the same, where every node loses 1 % of what it receives (`tests/clients/e2e.py --loss 1 NAME`; the ctests
`loss.NAME`, of which `make test` has the short ones and `make test-long` all). "all": of all packets; "CM": of those of the
CM only, since of UC, UD and multicast nobody repeats what is lost.
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """One program in one mode."""

    program: str
    mode: str
    group: str  # the test that runs it, in the row's module
    lost: str = "all"  # what gets lost where 1 % does: "all", "CM", or "" where there is nothing to lose
    run: typing.Callable[[Lab, Path], None] | None = None  # None: the group's own function does


@dataclasses.dataclass(frozen=True)
class Missing:
    """What does not work, and why. `run`, if given, shows that it is refused."""

    program: str
    mode: str
    why: str


def require(packages: dict[str, str]) -> None:
    """Skips without the packages; fails where their upstream versions are not those that the document names."""
    for package, version in packages.items():
        found = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}", package],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        if not found.startswith("ii"):
            raise Skipped(f"{package} is not installed: scripts/setup.sh test")
        installed = found[2:].strip()
        if installed.rpartition("-")[0] != version:
            raise Failure(f"{package} is {installed}; the table says {version}")


def cases(module_packages: dict[str, str], rows: list[Row], short: tuple[str, ...], kind: str = "veth4") -> dict:
    """A test for each group of rows that have a `run`: one after the other over one path. `short`: these groups."""

    def case_of(group: str):
        def case(lab: Lab):
            require(module_packages)
            path = lab.path(kind)
            for row in rows:
                if row.group != group:
                    continue
                started = time.monotonic()
                try:
                    row.run(lab, path)
                except Failure as failure:
                    raise Failure(f"{row.program}, {row.mode}: {failure}") from failure
                print(f"{row.program}, {row.mode}: {time.monotonic() - started:.1f} s", flush=True)

        case.short = group in short
        return case

    return {group: case_of(group) for group in dict.fromkeys(row.group for row in rows if row.run)}


def document(modules: list[types.ModuleType], tests: dict, lossy: typing.Callable[[str], bool]) -> str:
    """`lossy` says of a test's name whether it also runs where datagrams get lost."""
    text = HEADER
    for module in modules:
        packages = ", ".join(f"{name} {version}" for name, version in module.PACKAGES.items())
        text += f"\n## {packages}\n\n| program | mode | 1 % lost | test |\n|---|---|---|---|\n"
        for row in module.ROWS:
            name = f"{module.__name__}.{row.group}"
            named = [test for test in tests if test.startswith(name)]
            assert named, f"no test {name}"
            lost = row.lost if any(lossy(test) for test in named) else ""
            text += f"| {row.program} | {row.mode} | {lost} | `{name}` |\n"
        if module.MISSING:
            text += "\n| not there | | why |\n|---|---|---|\n"
            for missing in module.MISSING:
                text += f"| {missing.program} | {missing.mode} | {missing.why} |\n"
    return text
