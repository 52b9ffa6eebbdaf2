"""Programs in the machine under `ucm run --device verbs`: the system's libibverbs on rxe, UCM's librdmacm, and the kernel's
rdma_cm for connections. Their peers: UCM's software device outside of the machine, and themselves."""

import contextlib
import functools

import matrix
import programs
from guest import InteropLab
from lab import ORDINARY_UID, Failure, Path

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


def ordinary_user(lab: InteropLab):
    """Needs nothing but device nodes that may be opened, which they may."""
    lab.in_guest = ("setpriv", "--reuid", str(ORDINARY_UID), "--regid", str(ORDINARY_UID), "--clear-groups",
                    "/build/bin/ucm", "run", *VERBS, "--")
    try:
        path = path_of(lab, "own4")
        programs.rping(lab, path, "-v", "-S", "4096", count=20)
        programs.ucmatose(lab, path, "-c", "20", "-C", "10", "-S", "4096")
    finally:
        lab.in_guest = ()


def connection(name: str, port: int) -> tuple[str, ...]:
    """Of the calls of cm_calls: IDs `NAME` and `NAMEb` are the ends of a connection of the device with itself."""
    return (f"id {name}", f"resolved {name} 10.77.0.2 {port}", f"qp {name}", f"connect {name}", f"event l {name}b", f"qp {name}b",
            f"accept {name}b", f"event {name}", "event l")


LISTENER = ("id l", "bind l 10.77.0.2 7200", "listen l 4")


def changed_user(lab: InteropLab):
    """A program that has become another user goes on, with what it had and with what is new."""
    with lab.ucm_in_guest(*VERBS):
        told = lab.calls(lab.guest, *LISTENER, *connection("a", 7200), f"user {ORDINARY_UID}", "disconnect a", "event l",
                         "disconnect ab", "event a", *connection("c", 7200)).succeed().splitlines()
    for line in (f"user {ORDINARY_UID}: 0", "disconnect a: 0", "event a: DISCONNECTED 0", "connect c: 0"):
        if line not in told:
            raise Failure(f"no '{line}'")
    if sum("event c: ESTABLISHED 0" in line for line in told) != 1:
        raise Failure("no connection of the other user")


def removed(lab: InteropLab):
    """A device that goes is told of, as with the system's library; the next one works."""
    def tell(*prefix: str) -> str:
        with lab.ucm_in_guest(*prefix) if prefix else contextlib.nullcontext():
            program = lab.calls(lab.guest, *LISTENER, *connection("a", 7200), "id d", "bind d 10.77.0.2 7201", "say connected",
                                "event a", "event d", "event l", "event l", "destroy a", "destroy ab", "destroy l", "destroy d")
            program.expect("say connected")
            remover = lab.guest.start("rdma link delete rxe0")  # it returns when nobody has the device any more
            told = program.succeed()
            remover.succeed()
            lab.guest.run("rdma link add rxe0 type rxe netdev eth0")
        return told.partition("say connected")[2]

    stock, ucm = tell(), tell(*VERBS)
    if ucm != stock or ucm.count("DEVICE_REMOVAL 0") != 4:
        raise Failure(f"the system's library:\n{stock}UCM's:\n{ucm}")
    under_ucm(lab, functools.partial(programs.rping, count=10), "own4")


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
          "chosen": chosen, "ordinary_user": ordinary_user, "changed_user": changed_user, "removed": removed}
