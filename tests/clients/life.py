"""Programs and daemons that start, end, race and die."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

from lab import Failure, Lab, wait_until
from programs import RPING_PORT, endless_rping, rdma_client, rping, ucmatose


def daemon_of(space) -> int | None:
    return space.process_named("ucmd")


# Field case 7.10
def client_killed(lab: Lab):
    """The peer of a killed program hears of it, and what the program had is free again."""
    path = lab.path("veth4")
    server, client = endless_rping(lab, path)
    client.signal(signal.SIGKILL)
    server.expect("DISCONNECT EVENT|RDMA_CM_EVENT_DISCONNECTED")
    server.wait()
    wait_until(lambda: not re.search(rf":{RPING_PORT}\b", lab.status(path.server)), "the server's listener gone")
    wait_until(lambda: "10.77.0.1" not in connections(lab.status(path.client)), "the client's connection gone")


def connections(status: str) -> str:
    """The part of `ucm status` that lists connections which are not over."""
    return "\n".join(line for line in status.splitlines() if "ESTABLISHED" in line.upper())


# Field case 7.10
def server_killed(lab: Lab):
    path = lab.path("loopback4")
    server, client = endless_rping(lab, path)
    server.signal(signal.SIGKILL)
    client.expect("DISCONNECT EVENT")
    client.wait()  # for rping a disconnection is no failure
    wait_until(lambda: not re.search(rf":{RPING_PORT}\b", lab.status(path.server)), "listener gone")
    rping(lab, path, "-S", "100", count=10)  # the port is free, the daemon well


def node_killed(lab: Lab):
    """Programs whose daemon dies with its holder get an error; none waits for ever. (Their peers elsewhere wait as for a
    host that died.)"""
    path = lab.path("veth4")
    server, client = endless_rping(lab, path)
    waiting = lab.ucm_run(path.server, "rping", "-s", "-p", "7000", "-a", path.bind_address)
    lab.wait_listening(path.server, 7000)
    path.server.kill_node()
    for program in (waiting, server):
        program.wait()
    client.end()
    # A new start finds no obstacle.
    rping(lab, path, "-S", "100", count=10)


def racing_starts(lab: Lab):
    """Programs started at one moment share one daemon."""
    space = lab.namespace("a")
    for _ in range(3):
        starts = [lab.ucm_run(space, "true") for _ in range(6)]
        for start in starts:
            start.succeed()
        daemons = [pid for pid in space.processes() if comm(pid) == "ucmd"]
        if len(daemons) != 1:
            raise Failure(f"{len(daemons)} daemons run")
        lab.ucm(space, "stop").succeed()
        wait_until(lambda: daemon_of(space) is None, "daemon gone")


def comm(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def status_and_stop(lab: Lab):
    a, _ = lab.veth_pair()
    before = lab.ucm(a, "status")
    if before.wait() == 0:
        raise Failure("`ucm status` succeeds without a daemon")
    server = lab.ucm_run(a, "rping", "-s", "-a", "10.77.0.1")
    lab.wait_listening(a, RPING_PORT)
    text = lab.ucm(a, "status").succeed()
    for expected in ("ucm_lo", "ucm_veth_a", "127.0.0.1", "10.77.0.1", "fd77::1", f":{RPING_PORT}", str(daemon_of(a))):
        if expected not in text:
            raise Failure(f"`ucm status` does not tell '{expected}':\n{text}")
    lab.ucm(a, "stop").succeed()
    wait_until(lambda: daemon_of(a) is None, "daemon gone")
    if server.wait() == 0:
        raise Failure("the server succeeded though its daemon was stopped")


def other_users_daemon(lab: Lab):
    """Root's programs do not trust an ordinary user's daemon; the message says whose it is."""
    space = lab.namespace("a")
    lab.ucm_run(space, "true", user="user").succeed()
    program = lab.ucm_run(space, "true")
    if program.wait() == 0:
        raise Failure("root's program used an ordinary user's daemon")
    program.expect("64123")
    # The other way round: everybody may use root's.
    other = lab.namespace("b")
    lab.ucm_run(other, "true").succeed()
    lab.ucm_run(other, "true", user="user").succeed()


def mixed_users(lab: Lab):
    """A server of root and a client of an ordinary user, both served by root's daemon."""
    path = lab.path("loopback4")
    server = lab.ucm_run(path.server, "rping", "-s", "-V", "-C", "100", "-a", path.bind_address)
    lab.wait_listening(path.server, RPING_PORT)
    client = lab.ucm_run(path.client, "rping", "-c", "-V", "-C", "100", "-a", path.address, user="user")
    client.succeed()
    server.succeed()


def embedded(lab: Lab):
    """The node inside the program: no daemon anywhere."""
    path = lab.path("veth4")
    server = lab.ucm_run(path.server, "rping", "-s", "-V", "-C", "200", "-a", path.bind_address, options=("--embedded",))
    udp_port_bound(path.server)
    time.sleep(0.2)  # from the open port to the listener; nothing outside of the program tells when
    client = lab.ucm_run(path.client, "rping", "-c", "-V", "-C", "200", "-a", path.address, options=("--embedded",))
    client.succeed()
    server.succeed()
    for space in (path.server, path.client):
        if daemon_of(space) is not None:
            raise Failure("a daemon was started")


def udp_port_bound(space) -> None:
    wait_until(lambda: re.search(r":12B7 ", space.run("cat", "/proc/net/udp", "/proc/net/udp6")), "UDP port 4791 in use")


def mode_off(lab: Lab):
    """UCM_MODE=off: the program gets the system's libraries, and no daemon is started."""
    space = lab.namespace("a")
    program = lab.ucm_run(space, "sh", "-c", "echo libraries=$LD_LIBRARY_PATH.", settings=["UCM_MODE=off"])
    if "lib/ucm" in program.succeed() or daemon_of(space) is not None:
        raise Failure("UCM is not off")


def installed(lab: Lab):
    """What `make install` puts into a folder runs from there."""
    target = lab.directory / "root"
    # With its one component named, the manifest of `make install` stays.
    subprocess.run(["cmake", "--install", str(lab.build), "--prefix", "/usr", "--component", "Unspecified"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "DESTDIR": str(target)})
    lab.build = target / "usr"
    path = lab.path("loopback4")
    rping(lab, path, "-v", "-S", "100", count=10, user="root")
    daemon = daemon_of(path.server)
    if not os.readlink(f"/proc/{daemon}/exe").startswith(str(target)):
        raise Failure("another daemon than the installed one runs")
    maps = pathlib.Path(f"/proc/{daemon}/maps").read_text()
    if "libucm_runtime.so" in maps and str(target) not in maps:
        raise Failure("the daemon uses another library than the installed one")
    unit = (lab.build / "lib/systemd/system/ucmd.service").read_text()
    if "\nExecStart=/usr/bin/ucmd --foreground\n" not in unit:
        raise Failure(f"systemd would start something else:\n{unit}")


def idle_exit(lab: Lab):
    """A daemon that `ucm run` started leaves when nobody needs it any more, not before."""
    space = lab.namespace("a")
    server = lab.ucm_run(space, "rping", "-s", "-a", "127.0.0.1", options=("--idle-exit", "1"))
    lab.wait_listening(space, RPING_PORT)
    time.sleep(2.0)  # longer than the daemon may be idle: it is not
    if daemon_of(space) is None:
        raise Failure("the daemon left a program alone")
    server.end()
    wait_until(lambda: daemon_of(space) is None, "daemon gone", 10.0)


def doctor(lab: Lab):
    """`ucm doctor` tells a machine that is fit from one that is not, and what is wrong."""

    def findings(code: int) -> dict[str, list[dict]]:
        program = lab.ucm(space, "doctor", "--json")
        if program.wait() != code:
            raise Failure(f"ucm doctor: exit code {program.wait()}, not {code}")
        by_subject = {}
        for finding in json.loads(program.output()):
            by_subject.setdefault(finding["subject"], []).append(finding)
        return by_subject

    def expect(found: dict[str, list[dict]], subject: str, verdict: str, text: str):
        if not any(one["verdict"] == verdict and text in one["found"] for one in found[subject]):
            raise Failure(f"ucm doctor says of {subject}: {found[subject]}")

    space = lab.namespace("a")
    healthy = findings(0)
    expect(healthy, "UDP port 4791", "good", "free")
    expect(healthy, "daemon", "good", "none runs")
    expect(healthy, "device", "good", "ucm_lo, MTU 65536, 127.0.0.1")
    holder = lab.start(space, "python3", "-uc", "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
                       "s.bind(('0.0.0.0', 4791)); print('bound'); time.sleep(1000)")
    holder.expect("bound")
    expect(findings(1), "UDP port 4791", "problem", f"process {space.process_named('python3')}")
    holder.end()
    server = lab.ucm_run(space, "rping", "-s", "-a", "127.0.0.1")
    lab.wait_listening(space, RPING_PORT)
    served = findings(0)
    expect(served, "daemon", "good", f"process {daemon_of(space)} of user 0 on @ucm")
    expect(served, "UDP port 4791", "good", "served by the daemon")
    server.end()


def bench(lab: Lab):
    """`ucm bench` measures every way to connect, and its page is made of what it printed."""
    space = lab.namespace("a")
    program = lab.ucm(space, "bench", "connect", "--json", "--connections", "50", "--in-flight", "1,8", "--live", "10",
                      "--runs", "2", "--data", "100", "--threads", "1,2")
    program.succeed()
    text = program.output()
    document = json.loads(text[text.index("{"):])
    ways = {"rdma_cm", "exchange", "tcp", "packets3", "packets2"}
    found = {(case["way"], case["in_flight"], case["threads"]) for case in document["cases"]}
    expected = {(way, n, threads) for way in ways for n in (1, 8) for threads in (1, 2)
                if threads == 1 or not way.startswith("packets")}
    if found != expected:
        raise Failure(f"measured: {found}")
    for case in document["cases"]:
        phases = {phase["name"]: phase for phase in case["phases"]}
        needed = {"connect"}
        if case["way"] == "rdma_cm":
            needed |= {"resolve", "create QP", "establish", "data", "disconnect"}
            if case["processes"]["ucmd"]["cpu_us"] <= 0:
                raise Failure("ucmd costs no time")
        if case["failed"] or case["set_up_per_s"] <= 0 or not needed <= set(phases):
            raise Failure(f"figures of {case['way']}: {case}")
        if any(phases[name]["count"] != 100 for name in needed):  # 50 in each of two runs; the held ones do not count
            raise Failure(f"connections of {case['way']}: {phases}")
    figures = lab.directory / "figures.json"
    figures.write_text(json.dumps(document))
    page = lab.directory / "report.html"
    lab.ucm(space, "bench", "report", str(figures), str(figures), "--report", str(page)).succeed()
    if page.read_text().count("<svg") != 6:  # against in flight and threads; latency and phases for two of them
        raise Failure(f"the page has {page.read_text().count('<svg')} plots")
    if lab.ucm(space, "bench", "connect", "--ways", "pigeon").wait() == 0:
        raise Failure("an unknown way was measured")
    lost = lab.ucm(space, "bench", "connect", "--ways", "rdma_cm", "--address", "192.0.2.1", "--runs", "1")
    if lost.wait() == 0:
        raise Failure("an address that this host does not have was measured")
    lost.expect("192.0.2.1")


CASES = {case.__name__: case for case in (
    client_killed, server_killed, node_killed, racing_starts, status_and_stop, other_users_daemon, mixed_users,
    embedded, mode_off, installed, idle_exit, doctor, bench)}
for case in CASES.values():
    case.short = case in (client_killed, node_killed, racing_starts, embedded, bench)
