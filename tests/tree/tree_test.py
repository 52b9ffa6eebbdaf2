#!/usr/bin/env python3
"""Checks what no compiler checks: which folder includes what, and that the documents name things which exist.

    tests/tree/tree_test.py engines | arrows | documents | field-cases | calls
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

# The engines decide; others touch the world. All that these may include from outside of the project:
ENGINES = ("base", "wire", "cm", "recording", "roce", "rsocket/protocol")
ENGINE_HEADERS = {
    "algorithm", "array", "bit", "bitset", "cerrno", "compare", "concepts", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring",
    "deque", "functional", "initializer_list", "iterator", "limits", "list", "map", "memory", "numeric", "optional",
    "set", "span", "string", "string_view", "tuple", "type_traits", "unordered_map", "unordered_set", "utility",
    "variant", "vector", "tl/expected.hpp",
    # Error codes of refused calls; remote atomics on memory that a program's threads use as well.
    "atomic",
    # Intrinsics for the CRC.
    "immintrin.h", "wmmintrin.h", "smmintrin.h", "emmintrin.h", "arm_acle.h", "arm_neon.h",
}

# Which of our folders a folder may include, besides itself. abi/ is what programs meet; cli/ may use everything.
ARROWS = {
    "base": set(),
    "wire": {"base"},
    "cm": {"base", "wire"},
    "recording": {"base", "wire", "cm"},
    "roce": {"base", "wire"},
    "ipc": {"base", "wire", "host"},
    "net": {"base", "wire"},
    "host": {"base", "wire", "net"},
    "node": {"base", "wire", "cm", "recording", "ipc", "net", "host"},
    "daemon": {"base", "wire", "ipc", "net", "host", "node"},
    "client": {"base", "wire", "roce", "ipc", "net", "host", "daemon"},
    "kernel": {"base", "ipc", "client"},
    "rdma": {"base", "wire", "ipc", "host", "client", "kernel"},
    "rsocket": {"base", "ipc", "rdma"},
    "bench": {"base", "wire", "ipc", "net", "client"},
    "abi": {"base", "wire", "roce", "ipc", "host", "client", "rdma", "rsocket"},
}

problems = []


def includes(file: pathlib.Path):
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def sources(folder: str):
    return [file for file in sorted((SOURCE / folder).rglob("*")) if file.suffix in (".h", ".cpp", ".c")]


def check_engines() -> None:
    for folder in ENGINES:
        for file in sources(folder):
            for number, own, name in includes(file):
                if not own and name not in ENGINE_HEADERS:
                    problems.append(f"{file.relative_to(ROOT)}:{number}: an engine must not include <{name}>")
            for number, line in enumerate(file.read_text().splitlines(), 1):
                if re.search(r"\b(rand|random|time|clock|gettimeofday|clock_gettime|getenv)\(", line.split("//")[0]):
                    problems.append(f"{file.relative_to(ROOT)}:{number}: an engine must not ask the world: {line.strip()}")


def check_arrows() -> None:
    for folder, allowed in ARROWS.items():
        for file in sources(folder):
            for number, own, name in includes(file):
                other = name.split("/")[0]
                if own and "/" in name and other != folder and other not in allowed:
                    problems.append(f"{file.relative_to(ROOT)}:{number}: {folder} must not include {name}")


def check_documents() -> None:
    code = "\n".join(file.read_text() for folder in ("src", "tests", "bench") for file in sorted((ROOT / folder).rglob("*"))
                     if file.suffix in (".h", ".cpp", ".c", ".py", ".map"))
    words = set(re.findall(r"\w+", code))
    makefile = (ROOT / "Makefile").read_text()
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("src/*/README.md")),
                     *sorted(ROOT.glob("tests/*/README.md"))]:
        if not document.exists():
            continue
        text = document.read_text()
        where = document.relative_to(ROOT)
        # Paths in backticks, and links to files of the project.
        for name in re.findall(r"`((?:src|tests|docs|bench|scripts|cmake)/[\w./*-]+)`", text):
            if not list(ROOT.glob(name.rstrip("/"))):
                problems.append(f"{where}: there is no {name}")
        for name in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            if not (document.parent / name).exists():
                problems.append(f"{where}: a link leads to {name}, which does not exist")
        # Functions: `name()`, `Class::name()`.
        for name in re.findall(r"`([\w:]+)\(\)`", text):
            for part in name.split("::"):
                if part not in words:
                    problems.append(f"{where}: nothing in the code is called {part} ({name}())")
        for target in re.findall(r"`make ([a-z]+)", text):
            if not re.search(rf"^{target}:", makefile, re.MULTILINE):
                problems.append(f"{where}: there is no `make {target}`")


def check_field_cases() -> None:
    """docs/field-cases.md and the comments at the tests name the same tests for the same cases."""
    documented = set()
    for line in (ROOT / "docs" / "field-cases.md").read_text().splitlines():
        if match := re.match(r"\| (\d\.\d\d) \|", line):
            documented |= {(match.group(1), test) for test in re.findall(r"`(\w+\.\w+)`", line)}
    said = set()
    cases = r"// Field cases? ([\d., ]+)\n"
    test = r"TEST\w*\((\w+),\s*(\w+)\) \{"
    for file in sorted((ROOT / "tests").rglob("*.cpp")):
        text = file.read_text()
        for numbers, suite, name in re.findall(cases + test, text):
            said |= {(number, f"{suite}.{name}") for number in re.findall(r"\d\.\d\d", numbers)}
        for suite, name, numbers in re.findall(test + r"\s*" + cases, text):
            said |= {(number, f"{suite}.{name}") for number in re.findall(r"\d\.\d\d", numbers)}
    for file in sorted((ROOT / "tests" / "clients").glob("*.py")):
        for numbers, name in re.findall(r"# Field cases? ([\d., ]+)\ndef (\w+)\(", file.read_text()):
            said |= {(number, f"{file.stem}.{name}") for number in re.findall(r"\d\.\d\d", numbers)}
    for number, name in sorted(documented - said):
        problems.append(f"docs/field-cases.md: no test {name} says that it is about case {number}")
    for number, name in sorted(said - documented):
        problems.append(f"docs/field-cases.md: {name} is missing from case {number}")


# Those that only refuse.
UNCALLED = {"repoll_create", "repoll_ctl", "repoll_wait"}


def check_calls() -> None:
    """Some test calls every function that librdmacm.so.1 exports; in which states, docs/conformance.md says."""
    version_script = (SOURCE / "abi" / "rdmacm" / "librdmacm.map").read_text()
    exported = set(re.findall(r"^\s+(r\w+);", version_script, re.MULTILINE))
    code = "\n".join(file.read_text() for folder in ("clients", "interop", "unit/rdma")
                     for file in sorted((ROOT / "tests" / folder).glob("*.cpp")))
    called = set(re.findall(r"\br\w+", code))
    for name in sorted(exported - called - UNCALLED):
        problems.append(f"no test calls {name}")


def main() -> int:
    {"engines": check_engines, "arrows": check_arrows, "documents": check_documents,
     "field-cases": check_field_cases, "calls": check_calls}[sys.argv[1]]()
    for problem in problems:
        print(problem)
    print(f"{sys.argv[1]}: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
