#!/usr/bin/env python3
"""Holds the same dialogues with Linux and with UCM, and compares what both do. The result is docs/conformance.md.

    tests/interop/conformance.py              all, in one virtual machine
    tests/interop/conformance.py NAME…        those that begin so
    tests/interop/conformance.py --update     all, and writes docs/conformance.md

A row fails when the two differ and it does not say why, when they no longer differ although it says why, or when the
document says something else.
"""

import concurrent.futures
import difflib
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))

import dialogue
import guest
import lab
import runner
from conformance_rows import ROWS, STATES, Row
from dialogue import EVERYWHERE, Dialogue, Observed

DOCUMENT = HERE.parents[1] / "docs" / "conformance.md"
# Most of a dialogue is waiting.
DIALOGUES_AT_A_TIME = 12


def hold(device: dialogue.Device, row: Row) -> list[Observed]:
    talk = Dialogue(device, ROWS.index(row), row.name)
    try:
        row.hold(talk)
    except dialogue.Ended:
        pass
    except lab.Failure as failure:
        talk.fail(str(failure))
    finally:
        talk.close()
    return talk.observed


def equal_facts(ours: dict, theirs: dict) -> list[str]:
    """The members in which a message of UCM (`ours`) is not Linux' (`theirs`), in words."""
    allowed = {(known.member, known.linux, known.ucm) for known in EVERYWHERE}
    return [f"{member.removeprefix('fields.')} {theirs.get(member)} / {ours.get(member)}" for member in {**theirs, **ours}
            if theirs.get(member) != ours.get(member) and (member, theirs.get(member), ours.get(member)) not in allowed]


def differences(linux: list[Observed], ucm: list[Observed]) -> list[str]:
    """What is not the same, a line each."""
    found = []
    matcher = difflib.SequenceMatcher(None, [o.kind for o in linux], [o.kind for o in ucm], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            for theirs, ours in zip(linux[a:b], ucm[c:d]):
                found += [f"{theirs.brief}: {text}" for text in equal_facts(ours.facts, theirs.facts)]
        else:
            found.append(f"{told(linux[a:b])} / {told(ucm[c:d])}")
    return found


def told(observed: list[Observed]) -> str:
    return "; ".join(o.brief for o in observed) or "nothing"


def shown(observed: list[Observed]) -> str:
    """For readers: without private data, and what only repeats the request or the row's rule."""
    text = told([o for o in observed if o.shown]).replace("|", "\\|")
    text = re.sub(r"every \S+ .*?: ", "", text)
    return re.sub(r"(CONNECT_REQUEST 0) rr=[^;]*", r"\1", re.sub(r" data=\d+:\w*", "", text))


def table_line(row: Row, linux: list[Observed], ucm: list[Observed]) -> str:
    unlike = differences(linux, ucm)
    theirs, ours = shown(linux), shown(ucm)
    if not unlike:
        cell = "same"
    elif theirs != ours:
        cell = f"**{ours}**: {row.differs}"
    else:
        cell = f"**{'; '.join(unlike)}**: {row.differs}"
    return f"| {row.rule} (`{row.name}`) | {theirs} | {cell} |"


def judge(row: Row, linux: list[Observed], ucm: list[Observed]) -> str | None:
    """Why the row fails."""
    unlike = differences(linux, ucm)
    if unlike and row.differs is None:
        return "Linux / UCM: " + "\n  ".join(unlike) + f"\n  Linux: {told(linux)}\n  UCM:   {told(ucm)}"
    if not unlike and row.differs is not None:
        return "no longer different"
    return None


def document(lines: dict[str, str]) -> str:
    text = (HERE / "conformance.md.in").read_text()
    free = "\n".join(f"| {free.what} | {', '.join(f'`{m}`' for m in free.members)} | {free.why} |" for free in dialogue.FREE)
    left_out = "\n".join(f"| | `{member}` | {why} |" for member, why in dialogue.LEFT_OUT.items())
    everywhere = "\n".join(f"| `{known.member}` | {known.linux} | {known.ucm} | {known.why} |" for known in EVERYWHERE)
    tables = []
    for chapter in dict.fromkeys(row.chapter for row in ROWS):
        rows = "\n".join(lines[row.name] for row in ROWS if row.chapter == chapter)
        tables.append(f"## {chapter}\n\n| case | Linux | UCM |\n|---|---|---|\n{rows}")
    return (text.replace("@FREE@", f"{free}\n{left_out}").replace("@EVERYWHERE@", everywhere)
            .replace("@TABLES@", "\n\n".join(tables)))


# The rows that need no peer come last.
if sum(row.chapter != STATES for row in ROWS) > dialogue.PEERS_MAX:
    raise SystemExit("more rows than addresses: see PEERS_MAX")


def held(space: guest.InteropLab, rows: list[Row]) -> dict[str, tuple[list[Observed], list[Observed]]]:
    """The dialogues with both, many at a time, those that wait long first."""
    devices = (dialogue.linux(space), dialogue.ucm(space))
    rows = sorted(rows, key=lambda row: not row.slow)
    try:
        with concurrent.futures.ThreadPoolExecutor(2 * DIALOGUES_AT_A_TIME) as pool:
            running = {row.name: [pool.submit(hold, device, row) for device in devices] for row in rows}
            return {name: tuple(one.result() for one in both) for name, both in running.items()}
    finally:
        for device in devices:
            device.close()


def compare(space: guest.InteropLab, rows: list[Row], update: bool = False) -> None:
    seen = held(space, rows)
    problems = [f"{row.name}: {problem}" for row in rows if (problem := judge(row, *seen[row.name]))]
    lines = {row.name: table_line(row, *seen[row.name]) for row in rows}
    if update and not problems:
        DOCUMENT.write_text(document(lines))
    written = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    if not problems:
        problems = [f"{DOCUMENT.name} does not have: {line}" for line in lines.values() if line not in written.splitlines()]
    if not problems and len(rows) == len(ROWS) and document(lines) != written:
        problems = [f"{DOCUMENT.name} is not what {pathlib.Path(__file__).name} --update makes"]
    if problems:
        raise lab.Failure("\n".join(problems))
    print(f"{len(rows)} rows compared, {sum(row.differs is not None for row in rows)} of them different on purpose")


def chosen(condition):
    return lambda space: compare(space, [row for row in ROWS if condition(row)])


# For interop.py. Every row is in one of them.
CASES = {"core": chosen(lambda row: row.core), "rest": chosen(lambda row: not row.core)}


def main() -> int:
    parser = runner.argument_parser("Compares UCM with a Linux kernel")
    parser.add_argument("--update", action="store_true", help="write docs/conformance.md")
    arguments = parser.parse_args()
    by_name = {row.name: row for row in ROWS}
    if arguments.list:
        print("\n".join(by_name))
        return 0
    names = runner.choose(parser, by_name, tuple(arguments.name) or ("",))
    if arguments.update and len(names) != len(ROWS):
        parser.error("--update needs all rows")
    if not runner.can_run_here():
        return runner.EXIT_SKIPPED
    try:
        with guest.InteropLab(arguments.build.resolve()) as space:
            space.boot()
            compare(space, [by_name[name] for name in names], arguments.update)
    except lab.Skipped as reason:
        print(f"SKIPPED: {reason}")
        return runner.EXIT_SKIPPED
    except lab.Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
