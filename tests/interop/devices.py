"""Programs in the machine under `ucm run --device verbs`: the system's libibverbs on rxe, UCM's librdmacm, and the kernel's
rdma_cm for connections. Their peers: UCM's software device outside of the machine, and themselves."""

import functools

import matrix
import programs
from guest import InteropLab
from lab import Failure, Path

VERBS = ("--device", "verbs")
SENDERS_MAX = 50


def path_of(lab: InteropLab, kind: str) -> Path:
    """`own4`, `own6`: server and client are both in the machine, and the device talks to itself."""
    if not kind.startswith("own"):
        return lab.path(kind)
    address = "10.77.0.2" if kind.endswith("4") else "fd77::2"
    return Path(lab.guest, lab.guest, address, address)


def under_ucm(lab: InteropLab, function, kind: str):
    with lab.ucm_in_guest(*VERBS):
        function(lab, path_of(lab, kind))


def chosen(lab: InteropLab):
    """`auto` takes the machine's device, `soft` leaves it alone, and `verbs` says what is missing. The program has UCM's
    librdmacm and the system's libibverbs."""
    def told(*options: str) -> str:
        with lab.ucm_in_guest(*options):
            return lab.ucm_run(lab.guest, "sh", "-c", "echo $UCM_DEVICE $LD_LIBRARY_PATH").succeed().strip()

    for options in ((), VERBS, ("--device", "auto")):
        if told(*options) != "verbs /build/lib/ucm":
            raise Failure(f"{options}: {told(*options)}")
    lab.guest.run("mkdir -p /run/empty && mount --bind /run/empty /dev/infiniband")
    try:
        refused = lab.guest.start("/build/bin/ucm run --device verbs -- true")
        if refused.wait() != 125 or "the RDMA device rxe0 cannot be opened" not in refused.output():
            raise Failure(f"without device nodes: {refused.output()}")
    finally:
        lab.guest.run("umount /dev/infiniband")
    with lab.ucm_in_guest(*VERBS):
        server = lab.ucm_run(lab.guest, "rping", "-s", "-a", "10.77.0.2")
        lab.wait_listening(lab.guest, programs.RPING_PORT)
        maps = lab.guest.run("grep -ho '/[^ ]*/lib[a-z]*\\.so.*' /proc/$(pidof rping | cut -d' ' -f1)/maps | sort -u").split()
        server.end()
    if not any(name.startswith("/build/lib/ucm/librdmacm.so") for name in maps):
        raise Failure(f"not UCM's librdmacm: {maps}")
    if any("/build" in name and "ibverbs" in name for name in maps) or not any("/libibverbs.so" in name for name in maps):
        raise Failure(f"not the system's libibverbs: {maps}")


def mckey(lab: InteropLab):
    """Two receivers and senders on one device. A receiver does not tell when it has joined: there are senders until both have
    what they wait for."""
    def run(*options: str):
        return lab.ucm_run(lab.guest, "mckey", "-m", programs.MULTICAST_GROUP, "-b", "10.77.0.2", *options)

    def check(program):
        for line in (f"joined dgid: ::ffff:{programs.MULTICAST_GROUP}", "data transfers complete", "return status 0"):
            if line not in program.succeed(programs.RUN_S):
                raise Failure(f"{program.title}: did not print '{line}'")

    with lab.ucm_in_guest(*VERBS):
        receivers = [run(), run()]
        for _ in range(SENDERS_MAX):
            check(run("-s"))
            if not any(receiver.running() for receiver in receivers):
                break
        for receiver in receivers:
            check(receiver)


KINDS = ("to_linux4", "from_linux6", "own4")
CASES = {f"{name}.{kind}": functools.partial(under_ucm, function=function, kind=kind)
         for name, function in matrix.FUNCTIONS.items() for kind in KINDS}
CASES |= {f"{program}.{kind}": functools.partial(under_ucm, function=functools.partial(matrix.perftest, program=program), kind=kind)
          for program in ("ib_send_bw", "ib_read_bw") for kind in ("to_linux4", "from_linux4")}
CASES |= {"rping.own6": functools.partial(under_ucm, function=matrix.rping_sizes, kind="own6"), "mckey": mckey,
          "chosen": chosen}
