"""Our own programs: the errors of the API, connections from many threads, datagram services, rsockets."""

from faults import FAULTS
from lab import PATHS, Lab

RUN_S = 90.0


def run(lab: Lab, kind: str, program: str, *arguments: str, options: tuple[str, ...] = ()):
    path = lab.path(kind)
    lab.ucm_run(path.server, lab.executable(program), path.bind_address, *arguments, options=options).succeed(RUN_S)


# Field case 5.13
def errors(lab: Lab, kind: str):
    silent = {"veth4": ["10.77.0.99"], "veth6": ["fd77::99"]}.get(kind, [])
    run(lab, kind, "cm_errors", *silent)


def threads(lab: Lab, kind: str, *options: str):
    run(lab, kind, "cm_threads", "8", "25", options=options)


def datagrams(lab: Lab, kind: str, *options: str):
    run(lab, kind, "cm_datagrams", "64", options=options)


def no_fork(lab: Lab, options: tuple[str, ...]) -> tuple[str, ...]:
    """Forking a program with threads is more than the thread sanitizer can bear; and an embedded node stays with the parent."""
    return ("no-fork",) if "thread" in lab.sanitizer or "--embedded" in options else ()


# Field cases 7.03, 7.04, 7.06
def channels(lab: Lab, kind: str, *options: str):
    run(lab, kind, "cm_channels", *no_fork(lab, options), options=options)


# Field case 7.06
def lives(lab: Lab, kind: str, *options: str):
    run(lab, kind, "cm_lives", *no_fork(lab, options), options=options)


def stacks(lab: Lab, kind: str, *options: str):
    run(lab, kind, "cm_stacks", *no_fork(lab, options), options=options)


# Field case 7.12
def loaded(lab: Lab, kind: str):
    run(lab, kind, "loaded")


# Field cases 9.02, 9.03, 9.04, 9.05
def rsockets(lab: Lab, kind: str, *options: str):
    run(lab, kind, "rsocket_calls", *no_fork(lab, options), options=options)


def case(function, *arguments, short: bool = True):
    def test(lab: Lab):
        function(lab, *arguments)

    test.short = short
    return test


CASES = {f"errors.{kind}": case(errors, kind) for kind in PATHS if kind != "link_local"}
CASES |= {f"channels.{kind}": case(channels, kind) for kind in ("loopback4", "own")}
CASES |= {f"lives.{kind}": case(lives, kind, short=False) for kind in ("loopback4", "own")}
CASES["lives.embedded"] = case(lives, "loopback4", "--embedded", short=False)
CASES["stacks"] = case(stacks, "loopback4")
CASES["stacks.embedded"] = case(stacks, "loopback4", "--embedded")
CASES["loaded"] = case(loaded, "loopback4", short=False)
CASES |= {f"threads.{kind}": case(threads, kind) for kind in ("loopback4", "loopback6", "own")}
CASES |= {f"datagrams.{kind}": case(datagrams, kind) for kind in ("loopback4", "loopback6", "own")}
CASES["datagrams.embedded"] = case(datagrams, "loopback4", "--embedded")
CASES["datagrams.bad_network"] = case(datagrams, "own", *FAULTS)
CASES |= {f"rsockets.{kind}": case(rsockets, kind) for kind in ("loopback4", "loopback6", "own")}
CASES["rsockets.embedded"] = case(rsockets, "loopback4", "--embedded")
CASES["rsockets.bad_network"] = case(rsockets, "own", "--faults", "loss=1,seed=1")
CASES["threads.embedded"] = case(threads, "loopback4", "--embedded")
