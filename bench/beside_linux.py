#!/usr/bin/env python3
"""Debian's cmtime on the Linux kernel's rdma_cm and rxe, and the same cmtime under `ucm run` on UCM's software device: in one
virtual machine (tests/interop), on the same cores, in turn.

Everything is emulated there, so its times are the times of a slow machine. The ratios are what this is about.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests/interop"), str(ROOT / "tests/clients")]

import lab  # noqa: E402
import loss  # noqa: E402
import programs  # noqa: E402
from guest import InteropLab  # noqa: E402

COUNTS = (1, 100, 1000, 4000)
LOSSY_COUNT = 1000
LOSS = "loss 1%"
TIMEOUT_S = 300.0
WHOLE = "whole run"

# Namespaces of the machine: `one` has both programs on its loopback; `near` and `far` are joined by a veth.
UCM_NAMESPACES = """set -e
    modprobe -a veth sch_netem
    for name in one near far; do ip netns add $name; ip netns exec $name ip link set lo up; done
    ip link add name v0 netns near type veth peer name v0 netns far
    for pair in near.1 far.2; do
      ip -n ${pair%.*} link set v0 up
      ip -n ${pair%.*} address add 10.79.0.${pair#*.}/24 dev v0
    done"""


class Way:
    """How cmtime is run: what stands before it at the server and at the client, and where the server is."""

    def __init__(self, space: InteropLab, server: str, client: str, address: str, listening: str):
        self.space, self.server, self.client, self.address, self.listening = space, server, client, address, listening

    def run(self, count: int) -> dict[str, float]:
        """Milliseconds until the last connection is through with a step."""
        server = self.space.guest.start(f"{self.server} cmtime -b {self.address} -c {count}")
        lab.wait_until(lambda: re.search(self.listening, self.space.guest.run(self.status())), "the server's listener")
        client = self.space.guest.start(f"{self.client} cmtime -s {self.address} -c {count}")
        table = programs.cmtime_table(client, TIMEOUT_S)
        server.end()
        for program in (server, client):
            self.space.programs.remove(program)
        return {step: float(re.search(rf"^{step}\s*:\s*([\d.]+)", table, re.MULTILINE)[1])
                for step in programs.CMTIME_STEPS}

    def status(self) -> str:
        return "rdma resource show cm_id" if not self.server else f"{self.server.split(' run ')[0]} status || true"


def under_ucm(namespace: str) -> str:
    return f"ip netns exec {namespace} /build/bin/ucm run --device soft --"


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def compare(linux: Way, ucm: Way, count: int, runs: int) -> dict:
    """The median of each step, in turn."""
    samples = {"linux": [], "ucm": []}
    for number in range(runs):
        print(f"  {count} connections, run {number + 1} of {runs}", file=sys.stderr, flush=True)
        for name, way in (("linux", linux), ("ucm", ucm)):
            steps = way.run(count)
            samples[name].append(steps | {WHOLE: sum(steps.values())})
    return {step: {name: median([run[step] for run in of]) for name, of in samples.items()}
            for step in (*programs.CMTIME_STEPS, WHOLE)}


def tell(title: str, steps: dict) -> None:
    print(f"{title}\n  {'step':<14} {'Linux ms':>10} {'UCM ms':>10} {'ratio':>8}")
    for step, of in steps.items():
        ratio = f"{of['linux'] / of['ucm']:8.1f}" if of["ucm"] > 0 else f"{'–':>8}"
        print(f"  {step:<14} {of['linux']:10.2f} {of['ucm']:10.2f} {ratio}")
    print(flush=True)


def measure(space: InteropLab, runs: int, counts: tuple[int, ...]) -> dict:
    space.boot()
    space.guest.run(UCM_NAMESPACES)
    service = rf":{programs.CMATOSE_PORT}\b"
    result = {}
    linux = Way(space, "", "", "10.77.0.2", service)
    ucm = Way(space, under_ucm("one"), under_ucm("one"), "127.0.0.1", service)
    for count in counts:
        result[f"{count}"] = compare(linux, ucm, count, runs)
        tell(f"cmtime -c {count}, median of {runs} runs", result[f"{count}"])
    with loss.linux_with_linux(space, LOSS) as paths:
        for name in ("near", "far"):
            space.guest.run(f"ip netns exec {name} tc qdisc add dev v0 root netem {LOSS}")
        linux = Way(space, "", "", paths["4"].address, service)
        ucm = Way(space, under_ucm("far"), under_ucm("near"), "10.79.0.2", service)
        result["lossy"] = compare(linux, ucm, LOSSY_COUNT, runs)
    tell(f"cmtime -c {LOSSY_COUNT} with {LOSS} in both directions, median of {runs} runs", result["lossy"])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build tree (default: build)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="connections of a run")
    parser.add_argument("--json", type=pathlib.Path, help="write the medians into this file, too")
    arguments = parser.parse_args()
    try:
        lab.become_root()
        with InteropLab(arguments.build.resolve()) as space:
            result = measure(space, arguments.runs, tuple(arguments.counts))
    except lab.Skipped as reason:
        print(f"not measured beside Linux: {reason}")
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
