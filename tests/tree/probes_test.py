#!/usr/bin/env python3
"""The static probes of a program are those that scripts go by, and the examples use no others.

    tests/tree/probes_test.py PROGRAM…
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Name and number of arguments. Others' scripts know them: none goes, and none changes.
PROBES = {"call": 3, "call_done": 3, "event": 3, "message_received": 3, "message_sent": 3, "state": 4}


def probes_of(program: str) -> dict[str, set[int]]:
    """By name: how many arguments each place in the program gives."""
    notes = subprocess.run(["readelf", "--notes", "--wide", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    probes: dict[str, set[int]] = {}
    for provider, name, arguments in re.findall(r"Provider: (\w+)\n\s*Name: (\w+)\n.*\n\s*Arguments: (.*)", notes):
        if provider == "ucm":
            probes.setdefault(name, set()).add(len(re.findall(r"(?:^| )-?[1248]@", arguments)))
    return probes


def main() -> int:
    problems = []
    for program in sys.argv[1:]:
        found = probes_of(program)
        if found != {name: {count} for name, count in PROBES.items()}:
            problems.append(f"{program}: {found}")
    scripts = sorted((ROOT / "examples" / "bpftrace").glob("*.bt"))
    for script in scripts:
        text = script.read_text()
        used = re.findall(r"^usdt:\*:(\w+):(\w+)$(.*?)^}$", text, re.MULTILINE | re.DOTALL)
        if not used:
            problems.append(f"{script.name}: no probes")
        for provider, name, body in used:
            most = max((int(number) for number in re.findall(r"\barg(\d)\b", body)), default=-1)
            if provider != "ucm" or most >= PROBES.get(name, 0):
                problems.append(f"{script.name}: there is no {provider}:{name} with argument {most}")
    if len(scripts) < 2:
        problems.append("the examples are missing")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
