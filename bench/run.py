#!/usr/bin/env python3
"""Measures UCM: the pure parts by themselves, and connections and messages through the whole.

Numbers of one machine compare with numbers of the same machine only; the ratios at the end travel better.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/clients"))

import lab  # noqa: E402
import programs  # noqa: E402

SAMPLES = 5
RPING_COUNT = 5000


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def pure_parts(build: pathlib.Path) -> None:
    subprocess.run(["cmake", "--build", str(build), "--target", "benchmarks"], check=True, stdout=subprocess.DEVNULL)
    for program in sorted((build / "bin").glob("bench_*")):
        subprocess.run([str(program), "--benchmark_color=false"], check=True, stderr=subprocess.DEVNULL)
        print()


def cmtime_steps(space: lab.Lab, path: lab.Path) -> dict[str, float]:
    """Microseconds per connection for every step of `cmtime -c 1000`."""
    table = programs.cmtime(space, path, "-c", "1000")
    return {step: float(value) for step, value in re.findall(r"^([a-z ]+?)\s*:.*?([\d.]+)\s*$", table, re.MULTILINE)}


def rping_us(space: lab.Lab, path: lab.Path, size: str) -> float:
    """Microseconds per verified rping: four messages, a READ and a WRITE; start and end of the programs included."""
    started = time.monotonic()
    programs.rping(space, path, "-S", size, count=RPING_COUNT)
    return (time.monotonic() - started) * 1e6 / RPING_COUNT


def udp_round_trip_us() -> float:
    """The machine's own measure: a busy UDP round trip over 127.0.0.1 within one thread."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        payload = bytes(280)
        started = time.perf_counter()
        for _ in range(20000):
            one.sendto(payload, two.getsockname())
            two.recv(2048)
            two.sendto(payload, one.getsockname())
            one.recv(2048)
        return (time.perf_counter() - started) * 1e6 / 20000


def whole(space: lab.Lab) -> None:
    unit = udp_round_trip_us()
    print(f"UDP round trip of 280 bytes within one thread: {unit:.1f} µs (the unit of the ratios below)\n")
    paths = {"127.0.0.1": space.path("loopback4"), "veth": space.path("veth4")}
    for name, path in paths.items():
        runs = [cmtime_steps(space, path) for _ in range(SAMPLES)]
        print(f"cmtime -c 1000 over {name}, µs per connection (median of {SAMPLES} runs):")
        for step in programs.CMTIME_STEPS:
            value = median([run[step] for run in runs])
            print(f"  {step:<14} {value:9.2f}   {value / unit:7.2f} round trips")
    for name, path in paths.items():
        value = median([rping_us(space, path, "64") for _ in range(SAMPLES)])
        print(f"rping of 64 bytes over {name}: {value:.1f} µs each, {value / unit:.1f} round trips")


def beside_others(space: lab.Lab) -> None:
    """Connection set-up beside other ways to connect, as a page, too."""
    page = space.build / "connections.html"
    measured = space.ucm(space.namespace("bench"), "bench", "connect", "--runs", "3", "--report", str(page))
    print("connections beside other ways to connect: some 40 s", flush=True)
    print(measured.succeed(timeout_s=600))
    print(f"The same as a page with plots: {page}")


def beside_linux(build: pathlib.Path) -> None:
    """cmtime on the Linux kernel's rdma_cm and on UCM, where the virtual machine can be had."""
    print("cmtime beside the Linux kernel, in a virtual machine: some minutes", flush=True)
    subprocess.run([ROOT / "bench/beside_linux.py", "--build", build], check=False)


def main() -> int:
    build = ROOT / "build"
    pure_parts(build)
    try:
        lab.become_root()
        with lab.Lab(build) as space:
            whole(space)
            beside_others(space)
    except lab.Skipped as reason:
        print(f"the whole was not measured: {reason}")
        return 1
    beside_linux(build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
