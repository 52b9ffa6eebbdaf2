"""A virtual machine with Debian's own Linux kernel and its rxe device: the peer that UCM is measured against."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import lab

HERE = pathlib.Path(__file__).resolve().parent

# Normal is seven seconds; a busy host can make it ten times that.
BOOT_S = 180.0

KERNEL_ARGUMENTS = ("console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable clocksource=tsc preempt=none psi=0 "
                    "audit=0 nowatchdog random.trust_cpu=on")
# No offloads: what a capture on the tap shows is what a wire would carry.
PLAIN_NETWORK = ("romfile=,csum=off,guest_csum=off,gso=off,host_tso4=off,host_tso6=off,guest_tso4=off,guest_tso6=off,"
                 "guest_ufo=off,host_ufo=off")


def image(folder: pathlib.Path) -> None:
    """Makes the machine's kernel and root in the folder, when they are not there; skips the test when they cannot be had."""
    if not shutil.which("qemu-system-x86_64"):
        raise lab.Skipped("no qemu-system-x86_64 here: make test-interop (or scripts/setup.sh interop) installs it")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise lab.Skipped("the virtual machine's network needs /dev/net/tun: run as root")
    made = subprocess.run([HERE / "image.sh", folder], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if made.returncode == 77:
        raise lab.Skipped(f"no image for the virtual machine: {made.stdout.strip().splitlines()[-1]}")
    if made.returncode != 0:
        raise lab.Failure(f"image.sh: exit code {made.returncode}\n{made.stdout}")


class Guest:
    """The running machine, at 10.77.0.2 and fd77::2 behind `tap0` of a namespace, which has 10.77.0.1 and fd77::1 there.
    It ends with the namespace. Commands travel by a tap of their own, so that tap0 carries nothing else than the test."""

    name = "guest"

    def __init__(self, space_lab: lab.Lab, space: lab.Namespace, mtu: int = 1500):
        self.lab = space_lab
        self.space = space
        folder = space_lab.build / "interop"
        image(folder)
        # A long queue: the host sends in bursts that would not fit into the default one's 1000 packets.
        space.shell(f"""
            for tap in tap0 tap1; do ip tuntap add dev $tap mode tap; done
            ip link set tap0 address 52:54:00:77:00:01 mtu {mtu} txqueuelen 10000 up
            ip address add 10.77.0.1/24 dev tap0
            ip address add fd77::1/64 dev tap0 nodad
            ip address add 10.77.1.1/24 dev tap1
            ip link set tap1 up""")
        self.console = space_lab.directory / "console"
        self.machine = space_lab.start(
            space, "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-M", "q35",
            "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,-pclmulqdq",  # tables beat an emulated multiplication
            "-smp", "2", "-m", "512", "-kernel", str(folder / "vmlinux"), "-initrd", str(folder / "initramfs.cpio"),
            "-append", f"{KERNEL_ARGUMENTS} ucm.mtu={mtu}",
            "-netdev", "tap,id=n0,ifname=tap0,script=no,downscript=no,vhost=off",
            "-device", f"virtio-net-pci,netdev=n0,mac=52:54:00:77:00:02,{PLAIN_NETWORK}",
            "-netdev", "tap,id=n1,ifname=tap1,script=no,downscript=no,vhost=off",
            "-device", "virtio-net-pci,netdev=n1,mac=52:54:00:77:01:02,romfile=",
            "-device", "virtio-rng-pci", "-serial", f"file:{self.console}", "-monitor", "none",
            "-fsdev", f"local,id=build,path={space_lab.build},security_model=none,readonly=on",
            "-device", "virtio-9p-pci,fsdev=build,mount_tag=build")
        self.machine.title = "virtual machine"

        def ready() -> bool:
            if not self.machine.running():
                raise lab.Failure(f"the virtual machine ended: {self.machine.output()}")
            return self.console.exists() and "guest: ready" in self.console.read_text(errors="replace")

        try:
            lab.wait_until(ready, "the virtual machine's start", BOOT_S)
            self.run("rdma link show rxe0/1 | grep -q ACTIVE")
        except lab.Failure:
            print(self.console.read_text(errors="replace") if self.console.exists() else "no console output")
            raise

    def start(self, script: str) -> lab.Program:
        """Starts a shell script in the machine. Ending the returned program ends it, whatever it has started."""
        program = self.lab.start(self.space, sys.executable, "-B", str(HERE / "run_in_guest.py"), script)
        program.title = f"[guest] {script.strip()}"
        return program

    def run(self, script: str, timeout_s: float = lab.PATIENCE_S) -> str:
        """Runs a short script in the machine and returns what it prints; it must succeed."""
        program = self.start(script)
        output = program.succeed(timeout_s)
        self.lab.programs.remove(program)  # worth showing only if it failed
        return output

    def identifiers(self) -> list[str]:
        """The kernel's rdma_cm IDs, a line each."""
        return [line for line in self.run("rdma resource show cm_id").splitlines() if line.startswith("link")]

    def is_listening(self, service_port: int) -> bool:
        return any("state LISTEN" in line and re.search(rf"src-addr \S+:{service_port}\b", line)
                   for line in self.identifiers())


class InteropLab(lab.Lab):
    """A lab with the machine. Programs "under UCM" are, in the machine, programs on its kernel: tests written for two
    namespaces run between UCM and Linux."""

    guest: Guest
    host: lab.Namespace
    in_guest: tuple[str, ...] = ()

    def boot(self, mtu: int = 1500) -> None:
        self.host = self.namespace("host")
        self.guest = Guest(self, self.host, mtu)

    def path(self, kind: str) -> lab.Path:
        """`to_linux4`, `to_linux6`, `from_linux4`, `from_linux6`: whose the server is."""
        direction, version = kind[:-1], kind[-1]
        ends = {"to_linux": (self.guest, self.host, "2"), "from_linux": (self.host, self.guest, "1")}
        server, client, number = ends[direction]
        address = ("10.77.0." if version == "4" else "fd77::") + number
        return lab.Path(server, client, address, address)

    @contextlib.contextmanager
    def ucm_in_guest(self, *options: str):
        """Meanwhile, programs in the machine are under UCM, too."""
        self.in_guest = ("/build/bin/ucm", "run", *options, "--")
        try:
            yield
        finally:
            self.in_guest = ()

    def ucm_run(self, space, *argv: str, user: str = "root", options: tuple[str, ...] = (), **rest) -> lab.Program:
        if space is self.guest:
            return self.guest.start(shlex.join([*self.in_guest, *argv]))
        return super().ucm_run(space, *argv, user=user, options=options, **rest)

    def calls(self, space, *commands: str) -> lab.Program:
        """Starts cm_calls in the namespace or in the machine."""
        program = "/build/bin/cm_calls" if space is self.guest else self.executable("cm_calls")
        return self.ucm_run(space, program, *commands)

    def wait_listening(self, space, service_port: int, user: str = "root") -> None:
        if space is self.guest:
            lab.wait_until(lambda: self.guest.is_listening(service_port), f"listener on {service_port} in the machine")
        else:
            super().wait_listening(space, service_port, user)


PATHS = ("to_linux4", "to_linux6", "from_linux4", "from_linux6")
