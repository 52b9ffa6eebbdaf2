"""The text format of Prometheus, version 0.0.4, taken strictly."""

import re

from lab import Failure

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ([+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN)")
COMMENT = re.compile(rf"# (HELP|TYPE) ({NAME}) (.+)")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def parse(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and labels, in the order of the text; fails where a reader of Prometheus might."""
    if not text.endswith("\n"):
        raise Failure("the last line has no end")
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    types: dict[str, str] = {}
    family = ""
    for line in text.splitlines():
        if match := COMMENT.fullmatch(line):
            what, name, rest = match.groups()
            if what == "HELP":
                if name in types:
                    raise Failure(f"{name} comes in two places")
                family, types[name] = name, ""
            elif name != family or types[name] or rest not in SUFFIXES:
                raise Failure(f"a type at the wrong place: {line}")
            else:
                types[name] = rest
            continue
        match = SAMPLE.fullmatch(line)
        if not match:
            raise Failure(f"no sample: {line}")
        name, labels, value = match.groups()
        if not types.get(family) or name not in [family + suffix for suffix in SUFFIXES[types[family]]]:
            raise Failure(f"a sample outside of its family {family}: {line}")
        key = tuple(re.findall(LABEL, labels or ""))
        if len({label.split("=")[0] for label in key}) != len(key):
            raise Failure(f"a label twice: {line}")
        if key in samples.setdefault(name, {}):
            raise Failure(f"a sample twice: {line}")
        samples[name][key] = float(value)
    for name, kind in types.items():
        if kind == "counter" and not name.endswith("_total"):
            raise Failure(f"a counter's name ends with _total: {name}")
        if kind == "histogram":
            check_histogram(name, samples)
    return samples


def check_histogram(name: str, samples) -> None:
    series: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for labels, value in samples.get(name + "_bucket", {}).items():
        ends = [label for label in labels if label.startswith('le="')]
        if len(ends) != 1:
            raise Failure(f"{name}: a bucket has one upper end: {labels}")
        rest = tuple(label for label in labels if label not in ends)
        series.setdefault(rest, []).append((float(ends[0][4:-1]), value))
    for labels, buckets in series.items():
        ends = [end for end, _ in buckets]
        counts = [count for _, count in buckets]
        if ends != sorted(set(ends)) or counts != sorted(counts) or ends[-1] != float("inf"):
            raise Failure(f"{name}{labels}: buckets {buckets}")
        if samples[name + "_count"].get(labels) != counts[-1] or labels not in samples[name + "_sum"]:
            raise Failure(f"{name}{labels}: count or sum")
