#!/usr/bin/env python3
"""Counts instructions per connection with valgrind's callgrind: a figure that the load of a machine does not change much.

Two runs of `ucm bench connect --ways rdma_cm` that differ in their number of connections; what the second has more is
the connections'. Prints the figures beside those of bench/instructions.json, which --update writes anew.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
KEPT = ROOT / "bench/instructions.json"
FEW, MANY = 100, 400
IN_FLIGHT = "64"
# A function that only this process runs.
ROLES = {"client": "RdmaClient::set_up", "server": "RdmaServer::serve", "ucmd": "UdpPort::receive"}


def count(build: pathlib.Path, connections: int, keep: pathlib.Path) -> dict[str, int]:
    """Instructions of each process of one run, whose profiles stay in `keep`."""
    keep.mkdir(parents=True)
    ucm = str(build / "bin/ucm")
    bench = ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes", f"--callgrind-out-file={keep}/%p", ucm,
             "bench", "connect", "--ways", "rdma_cm", "--runs", "1", "--in-flight", IN_FLIGHT, "--connections", str(connections)]
    # The daemon leaves its profile when it is stopped.
    script = f'ip link set lo up && "$@" && {shlex.quote(ucm)} stop'
    subprocess.run(["unshare", "-n", "sh", "-c", script, "sh", *bench], check=True, stdout=subprocess.DEVNULL, timeout=900)
    for _ in range(600):
        counts = read_counts(keep)
        if counts.keys() == ROLES.keys():
            return counts
        time.sleep(0.1)
    sys.exit(f"only {', '.join(counts) or 'nothing'} of {', '.join(ROLES)} left a profile in {keep}")


def read_counts(profiles: pathlib.Path) -> dict[str, int]:
    counts = {}
    for profile in profiles.iterdir():
        text = profile.read_text(errors="replace")
        total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
        for role, function in ROLES.items():
            if total and function in text:
                counts[role] = int(total.group(1))
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build tree (default: build/ of this source tree)")
    parser.add_argument("--update", action="store_true", help="write bench/instructions.json")
    parser.add_argument("--keep", type=pathlib.Path, help="leave callgrind's profiles in this directory")
    options = parser.parse_args()
    if os.geteuid() != 0:
        os.execvp("unshare", ["unshare", "-Ur", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory() as scratch:
        keep = options.keep or pathlib.Path(scratch)
        few, many = (count(options.build, connections, keep / str(connections)) for connections in (FEW, MANY))
    found = {role: round((many[role] - few[role]) / (MANY - FEW)) for role in ROLES}
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    print("instructions per connection, from rdma_create_id to rdma_destroy_id:")
    for role, instructions in found.items():
        change = f"  {instructions / kept[role] - 1:+.1%}" if role in kept else ""
        print(f"  {role:<7} {instructions:>8,}{change}")
    if options.update:
        KEPT.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
