"""What connections cost, in counts that do not depend on the machine's speed (docs/performance.md has the figures)."""

import json
import pathlib
import time

from lab import Failure, Lab, Skipped

IDLE_CONNECTIONS = 10_000
IDLE_S = 3.0
# Of one core. A timer per connection and second, or one wake-up in a hundred microseconds, is more.
IDLE_SHARE_MAX = 0.005

# Per connection from rdma_create_id to rdma_destroy_id, many in flight: twice what was counted on a machine with many other
# things to do. A call more that waits costs two on each side; a loop that asks the kernel while it spins costs hundreds.
SYSTEM_CALLS_MAX = {"client": 16, "server": 14, "ucmd": 56}


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def idle(lab: Lab):
    """Connections that nobody uses cost no time: no timers, no polling."""
    path = lab.path("loopback4")
    holder = lab.ucm_run(path.server, lab.executable("cm_idle"), path.address, str(IDLE_CONNECTIONS), "0")
    holder.expect("^idle$", timeout_s=240)
    processes = {"the program": holder.pid, "ucmd": path.server.process_named("ucmd")}
    time.sleep(1.0)  # the last messages, and what waits for their repetition
    before = {name: cpu_s(pid) for name, pid in processes.items()}
    time.sleep(IDLE_S)
    for name, pid in processes.items():
        share = (cpu_s(pid) - before[name]) / IDLE_S
        if share > IDLE_SHARE_MAX:
            raise Failure(f"{name} takes {share:.2%} of a core for {IDLE_CONNECTIONS} idle connections")
    holder.end()


def system_calls(lab: Lab):
    """Many connections in flight share wake-ups, and most calls wait for nobody."""
    space = lab.namespace("bench")
    measured = lab.ucm(space, "bench", "connect", "--ways", "rdma_cm", "--connections", "1000", "--in-flight", "64", "--runs", "1", "--json")
    report = measured.succeed(timeout_s=240)
    [case] = json.loads(report[report.index("{"):])["cases"]
    for name, costs in case["processes"].items():
        calls = costs["system_calls"]
        if calls is None:
            raise Skipped("system calls cannot be counted here (perf events)")
        if calls > SYSTEM_CALLS_MAX[name]:
            raise Failure(f"{name} makes {calls:.1f} system calls per connection")


CASES = {"idle": idle, "system_calls": system_calls}
for case in CASES.values():
    case.short = False
