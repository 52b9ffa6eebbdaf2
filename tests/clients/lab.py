"""Network namespaces, programs that run in them, and what one may expect of them: the library of the end-to-end tests.

A `Lab` owns everything that a test makes. At its end (also after a failure, Ctrl-C or a termination signal) every
process in its namespaces is ended, and with the last of them the namespaces vanish: they have no names, only members.
Nothing outside of the lab's own namespaces is touched.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# A user ID that no account has: the "ordinary user" of the tests.
ORDINARY_UID = 64123

# How long to wait for something that normally takes milliseconds, on a machine that is busy with other tests.
PATIENCE_S = 20.0

# Of a program's command line, where its output is shown.
TITLE_SHOWN = 400


class Failure(AssertionError):
    """The tested programs did not do what they should."""


class Skipped(Exception):
    """The test cannot run here; the text says why and what would make it run."""


def wait_until(condition, what: str, timeout_s: float = PATIENCE_S):
    """Returns the first true value of `condition()`; fails when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.02)


class Program:
    """A running program with its output in a file."""

    def __init__(self, title: str, argv: list[str], output: pathlib.Path, environment: dict[str, str]):
        self.title = title
        self.output_path = output
        self.started = time.monotonic()
        with open(output, "wb") as sink:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment)

    @property
    def pid(self) -> int:
        """The program's own: whatever starts it replaces itself by it."""
        return self.process.pid

    def output(self) -> str:
        return self.output_path.read_text(errors="replace")

    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit code; minus the signal's number when a signal ended it."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.title}: still running after {timeout_s:g} s") from None

    def succeed(self, timeout_s: float = PATIENCE_S) -> str:
        """Waits for exit code 0 and returns the output."""
        code = self.wait(timeout_s)
        if code != 0:
            raise Failure(f"{self.title}: exit code {code}")
        return self.output()

    def expect(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match:
        """Waits until the output has `pattern`."""

        def look():
            match = re.search(pattern, self.output(), re.MULTILINE)
            if match is None and not self.running():
                match = re.search(pattern, self.output(), re.MULTILINE)
                if match is None:
                    raise Failure(f"{self.title}: ended ({self.process.returncode}) without printing /{pattern}/")
            return match

        return wait_until(look, f"{self.title}: output /{pattern}/", timeout_s)

    def signal(self, number: int) -> None:
        if self.running():
            self.process.send_signal(number)

    def end(self) -> None:
        """Ends a program that does not end by itself."""
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Namespace:
    """A network namespace, kept alive by one sleeping process. `lo` is up."""

    def __init__(self, lab: Lab, name: str):
        self.lab = lab
        self.name = name
        self.anchor = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not self.anchor.stdout.readline():
            raise Skipped("no network namespace can be made here: " + self.anchor.stderr.read().decode().strip())
        self.identity = os.readlink(f"/proc/{self.anchor.pid}/ns/net")
        # Addresses are usable at once: there is nobody here who could have the same.
        self.shell("for f in default all; do echo 0 >/proc/sys/net/ipv6/conf/$f/accept_dad; done; ip link set lo up")

    def enter(self) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.anchor.pid}/ns/net"]

    def run(self, *argv: str, check: bool = True, timeout_s: float = PATIENCE_S) -> str:
        """Runs a short command in the namespace and returns what it prints."""
        done = subprocess.run(
            [*self.enter(), *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=timeout_s, text=True)
        if check and done.returncode != 0:
            raise Failure(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def shell(self, script: str) -> str:
        return self.run("sh", "-ec", script)

    def link_local(self, interface: str) -> str:
        """The interface's link-local address with its zone."""

        def look():
            match = re.search(r"inet6 (fe80:[0-9a-f:]+)/", self.run("ip", "-6", "address", "show", "dev", interface))
            return match and match.group(1)

        return f"{wait_until(look, f'link-local address of {interface}')}%{interface}"

    def processes(self) -> list[int]:
        """Every process in the namespace but the sleeping one."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.anchor.pid:
                try:
                    if os.readlink(entry / "ns/net") == self.identity:
                        found.append(int(entry.name))
                except OSError:
                    pass  # gone meanwhile
        return found

    def process_named(self, name: str) -> int | None:
        for pid in self.processes():
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name:
                    return pid
            except OSError:
                pass
        return None

    def kill_daemon(self) -> None:
        """Kills the namespace's daemon; the next one has taken over when this returns."""
        killed = wait_until(lambda: self.process_named("ucmd"), "a daemon")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: self.process_named("ucmd") not in (None, killed), "the next daemon")

    def kill_node(self) -> None:
        """Kills the daemon and what would start the next one."""
        for name in ("ucm-holder", "ucmd"):
            os.kill(self.process_named(name), signal.SIGKILL)

    def close(self) -> None:
        for _ in range(100):
            members = self.processes()
            if not members:
                break
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        self.anchor.kill()
        self.anchor.wait()


@dataclasses.dataclass
class Path:
    """Where a server and a client stand to one another."""

    server: Namespace
    client: Namespace
    bind_address: str  # the server's, as the server says it
    address: str  # the server's, as the client says it


class Lab:
    def __init__(self, build: pathlib.Path, faults: str = ""):
        self.build = build
        self.faults = faults  # what every node does to what it receives (`ucm run --faults`), unless a test says otherwise
        self.namespaces: list[Namespace] = []
        self.programs: list[Program] = []
        self.sanitizer = build_setting(build, "UCM_SANITIZE")
        self.directory: pathlib.Path | None = None

    def __enter__(self) -> Lab:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ucm-test-"))
        self.directory.chmod(0o1777)  # an ordinary user's daemon writes its reports there, too
        return self

    def __exit__(self, kind, error, _trace) -> None:
        for namespace in self.namespaces:
            namespace.close()
        for program in self.programs:
            program.end()  # what runs outside of the namespaces, if anything
        reports = sorted(self.directory.glob("sanitizer.*"))
        if kind is not None and not issubclass(kind, Skipped) or reports:
            self.tell_outputs()
        for report in reports:
            print(f"---- {report.name}\n{report.read_text(errors='replace')[:8000]}")
        shutil.rmtree(self.directory)
        if reports and (kind is None or issubclass(kind, Failure)):
            raise Failure("a sanitizer reported an error") from error

    def tell_outputs(self) -> None:
        for program in self.programs:
            lines = program.output().splitlines()
            title = program.title if len(program.title) <= TITLE_SHOWN else program.title[:TITLE_SHOWN] + "…"
            print(f"---- {title} (exit code {program.process.returncode})")
            if len(lines) > 40:
                print(f"… {len(lines) - 40} lines")
            print("\n".join(lines[-40:]))

    def namespace(self, name: str) -> Namespace:
        self.namespaces.append(Namespace(self, name))
        return self.namespaces[-1]

    def veth_pair(self) -> tuple[Namespace, Namespace]:
        """Namespaces `a` (10.77.0.1, fd77::1 on `veth_a`) and `b` (10.77.0.2, fd77::2 on `veth_b`), joined."""
        a, b = self.namespace("a"), self.namespace("b")
        a.run("ip", "link", "add", "name", "veth_a", "type", "veth", "peer", "name", "veth_b",
              "netns", str(b.anchor.pid))
        for number, space in ((1, a), (2, b)):
            space.shell(f"""
                ip link set veth_{space.name} up
                ip address add 10.77.0.{number}/24 dev veth_{space.name}
                ip address add fd77::{number}/64 dev veth_{space.name} nodad""")
        for space in (a, b):
            space.link_local(f"veth_{space.name}")
        return a, b

    def path(self, kind: str) -> Path:
        """One of PATHS: the server is in `a`, the client in `b`, or both in one namespace."""
        if kind in LOOPBACK:
            space = self.namespace("a")
            return Path(space, space, LOOPBACK[kind], LOOPBACK[kind])
        a, b = self.veth_pair()
        if kind == "own":
            return Path(a, a, "10.77.0.1", "10.77.0.1")
        if kind == "veth4":
            return Path(a, b, "10.77.0.1", "10.77.0.1")
        if kind == "veth6":
            return Path(a, b, "fd77::1", "fd77::1")
        if kind == "link_local":
            address = a.link_local("veth_a")
            return Path(a, b, address, address.replace("%veth_a", "%veth_b"))
        raise ValueError(kind)

    def executable(self, name: str) -> str:
        path = self.build / "bin" / name
        if not path.exists():
            raise Failure(f"{path} has not been built")
        return str(path)

    def environment_settings(self) -> list[str]:
        """NAME=VALUE for a program under test."""
        report = f"log_path={self.directory}/sanitizer:external_symbolizer_path=/usr/bin/addr2line"
        settings = []
        if "address" in self.sanitizer:
            # Debian's programs are not built with the sanitizer, so its runtime must be loaded before them; and their
            # own leaks are not ours to report.
            settings = [
                "LD_PRELOAD=" + build_setting(self.build, "UCM_ASAN_RUNTIME"),
                f"ASAN_OPTIONS=detect_leaks=0:{report}",
                f"UBSAN_OPTIONS=print_stacktrace=1:{report}",
            ]
        elif "thread" in self.sanitizer:
            settings = [f"TSAN_OPTIONS=second_deadlock_stack=1:{report}"]
        return settings

    def start(self, space: Namespace, *argv: str, user: str = "root", settings: list[str] | None = None) -> Program:
        """Starts a program in a namespace as `root` or as an ordinary `user`."""
        settings = (settings or []) + self.environment_settings()
        launch = [*space.enter(), "setpriv", "--pdeathsig", "KILL"]
        if user != "root":
            if os.environ.get(NESTED):
                raise Skipped("a second user needs root: sudo make test")
            if not all(os.stat(parent).st_mode & 0o001 for parent in self.build.resolve().parents):
                raise Skipped(f"an ordinary user cannot reach {self.build}: chmod o+x its parent folders")
            launch += ["--reuid", str(ORDINARY_UID), "--regid", str(ORDINARY_UID), "--clear-groups"]
        launch += ["env", *settings]
        title = f"[{space.name}] {' '.join(pathlib.Path(word).name if word.startswith('/') else word for word in argv)}"
        program = Program(title, [*launch, *argv], self.directory / f"{len(self.programs)}.out",
                          {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})
        self.programs.append(program)
        return program

    def ucm(self, space: Namespace, *arguments: str, user: str = "root", **rest) -> Program:
        return self.start(space, self.executable("ucm"), *arguments, user=user, **rest)

    def ucm_run(self, space: Namespace, *argv: str, user: str = "root", options: tuple[str, ...] = (), **rest) -> Program:
        """Starts `ucm run OPTIONS -- ARGV`."""
        if self.faults and "--faults" not in options:
            options = (*options, "--faults", self.faults)
        return self.ucm(space, "run", *options, "--", *argv, user=user, **rest)

    def with_device_nodes(self, *names: str) -> list[str]:
        """What to put before a program that wants /dev/infiniband/NAME: a /dev of its own which has that."""
        script = '''
            dev=$1; shift
            mkdir -p "$dev"; mount -t tmpfs none "$dev"; mkdir "$dev/infiniband" "$dev/shm"
            for node in null zero random urandom; do : >"$dev/$node"; mount --bind /dev/$node "$dev/$node"; done
            while [ "$1" != -- ]; do ln -s ../null "$dev/infiniband/$1"; shift; done; shift
            mount --rbind "$dev" /dev
            exec "$@"'''
        return ["unshare", "--mount", "sh", "-ec", script, "sh", str(self.directory / "dev"), *names, "--"]

    def status(self, space: Namespace, user: str = "root") -> str:
        program = self.ucm(space, "status", user=user)
        program.wait()
        self.programs.remove(program)  # asked many times: not worth showing
        return program.output()

    def wait_listening(self, space: Namespace, service_port: int, user: str = "root") -> None:
        """Waits until the namespace's daemon has a listener on the port."""
        wait_until(lambda: re.search(rf":{service_port}\b", self.status(space, user)), f"listener on {service_port}")


# 127.0.0.2 is an address of this host that no interface lists.
VETH_B_ADDRESS = "10.77.0.2"
LOOPBACK = {"loopback4": "127.0.0.1", "loopback6": "::1", "loopback_other": "127.0.0.2"}
PATHS = (*LOOPBACK, "own", "veth4", "veth6", "link_local")

# Set in the environment of a test that made itself root of a user namespace.
NESTED = "UCM_TEST_NESTED"


def build_setting(build: pathlib.Path, name: str) -> str:
    """A setting of the CMake build tree; empty when there is none."""
    cache = build / "CMakeCache.txt"
    match = re.search(rf"^{name}:[A-Z]+=(.*)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    return match.group(1) if match else ""


def become_root() -> None:
    """Makes an ordinary user root of a user namespace of its own, where network namespaces can be made."""
    if os.geteuid() == 0:
        return
    probe = subprocess.run(["unshare", "--user", "--map-root-user", "--net", "true"], stderr=subprocess.PIPE, text=True)
    if probe.returncode != 0:
        raise Skipped(f"network namespaces need root here (sudo make test): {probe.stderr.strip()}")
    os.environ[NESTED] = "1"
    os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--", sys.executable, *sys.argv])
