"""The virtual machine by itself: what its commands say comes back, and nothing of it stays."""

import pathlib
import subprocess
import sys

from guest import InteropLab
from lab import Failure, wait_until


def commands(lab: InteropLab):
    """Output and exit code are the command's own."""
    program = lab.guest.start("echo out; echo err >&2; exit 7")
    if (program.wait(), program.output()) != (7, "out\nerr\n"):
        raise Failure(f"not what the command did: {program.process.returncode}, {program.output()!r}")
    if len(lab.guest.run("head -c 3000000 /dev/zero")) != 3000000:
        raise Failure("some of the output is missing")
    if lab.guest.run("uname -s").strip() != "Linux":
        raise Failure("no Linux there")


def ended_commands(lab: InteropLab):
    """Whatever a command has started ends with it."""
    program = lab.guest.start("sleep 4321 & echo started; exec sleep 4321")
    program.expect("started")
    program.end()
    wait_until(lambda: "sleep 4321" not in lab.guest.run("ps"), "the commands gone")


OTHER_RUN = """
import pathlib, sys, time
sys.path[:0] = sys.argv[2:]
import guest
with guest.InteropLab(pathlib.Path(sys.argv[1])) as lab:
    lab.boot()
    print("booted", flush=True)
    time.sleep(600)
"""


def killed_run(lab: InteropLab):
    """A run that is killed leaves no process, and so neither machine nor namespace nor tap."""
    folders = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "clients")]
    run = subprocess.Popen([sys.executable, "-B", "-c", OTHER_RUN, str(lab.build), *folders], stdout=subprocess.PIPE, text=True)
    if run.stdout.readline() != "booted\n":
        raise Failure("the other run did not boot its machine")
    children = [int(pid) for pid in pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]
    commands_of = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
    if not any(b"qemu-system" in command for command in commands_of):
        raise Failure("the machine is no child of its run")
    run.kill()
    run.wait()
    wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in children), "its processes gone")


CASES = {case.__name__: case for case in (commands, ended_commands, killed_run)}
