"""Links that go down and come up again, at UCM's end and at Linux'."""

import contextlib
import itertools
import re

from dialogue import MACHINE, Lines
from guest import PATHS, InteropLab
from lab import Failure, Path, wait_until
from programs import endless_rping
from refusals import nothing_left

APPLICATION_PORT = 7779
# A message that got lost comes again within this time.
QUIET_MS = 1500

service_ports = itertools.count(7100)


class Application:
    """cm_calls somewhere, one call after the other."""

    def __init__(self, lab: InteropLab, space):
        argv = (["busybox", "nc", MACHINE, str(APPLICATION_PORT)] if space is lab.guest else
                [lab.executable("ucm"), "run", "--", lab.executable("cm_calls"), "-"])
        self.lines = Lines(f"cm_calls in {space.name}", [*lab.host.enter(), "setpriv", "--pdeathsig", "KILL", *argv])

    def calls(self, *commands: str) -> None:
        """They succeed."""
        for command in commands:
            self.expect(command, "^0?$")

    def expect(self, command: str, pattern: str) -> None:
        self.lines.say(command)
        answer = self.lines.answer(command)
        if not re.search(pattern, answer):
            raise Failure(f"{self.lines.title}: {command}: {answer}")


class Pair:
    """A server that listens, and a client that may connect to it."""

    def __init__(self, lab: InteropLab, path: Path):
        port = next(service_ports)
        self.server, self.client = Application(lab, path.server), Application(lab, path.client)
        self.server.calls("id l", f"bind l {path.bind_address} {port}", "listen l 4")
        self.client.calls("id a", f"resolved a {path.address} {port}", "qp a")

    def connect(self) -> None:
        self.client.calls("connect a")
        self.accept()
        self.established()

    def accept(self) -> None:
        self.server.expect("event l b", "^CONNECT_REQUEST 0")
        self.server.calls("qp b", "accept b")

    def established(self) -> None:
        self.client.expect("event a", "^ESTABLISHED 0")
        self.server.expect("event l", "^ESTABLISHED 0")

    def nothing_happens(self) -> None:
        """To either program; and the QPs stay as they were."""
        for application, listener, connection in ((self.server, "l", "b"), (self.client, "a", "a")):
            application.calls(f"silence {listener} {QUIET_MS}")
            application.expect(f"state {connection}", "^RTS$")

    def disconnect(self) -> None:
        self.client.calls("disconnect a")
        self.disconnected()

    def disconnected(self) -> None:
        self.server.expect("event l", "^DISCONNECTED 0")
        self.server.calls("disconnect b")
        self.client.expect("event a", "^DISCONNECTED 0")

    def end(self) -> None:
        for application in (self.server, self.client):
            application.lines.end()


@contextlib.contextmanager
def pairs(lab: InteropLab, *kinds: str):
    """One on each path."""
    lab.ucm_run(lab.host, "true").succeed()  # starts the daemon
    service = lab.guest.start(f"nc -{'l' * 20} -p {APPLICATION_PORT} -e /build/bin/cm_calls -")
    wait_until(lambda: f":{APPLICATION_PORT:04X} " in lab.guest.run("cat /proc/net/tcp /proc/net/tcp6"), "nc in the machine")
    made = []
    try:
        for kind in kinds:
            made.append(Pair(lab, lab.path(kind)))
        yield made
    finally:
        for pair in made:
            pair.end()
        service.end()


def set_link(lab: InteropLab, space, state: str) -> None:
    """Waits until the device knows."""
    if space is lab.guest:
        lab.guest.run(f"ip link set eth0 {state}")
        expected = {"down": "DOWN", "up": "ACTIVE"}[state]
        wait_until(lambda: expected in lab.guest.run("cat /sys/class/infiniband/rxe0/ports/1/state"), f"rxe0 {expected}")
    else:
        lab.host.run("ip", "link", "set", "tap0", state)
        wait_until(lambda: ("(link down)" in device_line(lab)) == (state == "down"), f"ucm_tap0 {state}")


def device_line(lab: InteropLab) -> str:
    return re.search(r"^  ucm_tap0 .*", lab.status(lab.host), re.MULTILINE).group()


@contextlib.contextmanager
def link_down(lab: InteropLab, space):
    """Static IPv6 addresses stay, as IPv4's do. When they go, Linux' device forgets the address, and what it sends over connections
    that were made from it, a DREQ, too, is lost for ever, also when the same address is there again."""
    interface = "eth0" if space is lab.guest else "tap0"
    (lab.guest.run if space is lab.guest else lab.host.shell)(f"echo 1 >/proc/sys/net/ipv6/conf/{interface}/keep_addr_on_down")
    set_link(lab, space, "down")
    try:
        yield
    finally:
        set_link(lab, space, "up")


def idle(lab: InteropLab, space):
    """Connections on which nothing happens do not notice."""
    with pairs(lab, *PATHS) as all_pairs:
        for pair in all_pairs:
            pair.connect()
        with link_down(lab, space):
            for pair in all_pairs:
                pair.nothing_happens()
        for pair in all_pairs:
            pair.disconnect()


def ours_down(lab: InteropLab):
    """What either side sends while UCM's link is down comes again when it is up."""
    kinds = ("to_linux4", "from_linux4")
    with pairs(lab, *kinds) as asking, pairs(lab, *kinds) as answering, pairs(lab, *kinds) as ending:
        for pair in answering:
            pair.client.calls("connect a")
            pair.server.expect("event l b", "^CONNECT_REQUEST 0")
            pair.server.calls("qp b")
        for pair in ending:
            pair.connect()
        with link_down(lab, lab.host):
            for pair in asking:
                pair.client.calls("connect a")
            for pair in answering:
                pair.server.calls("accept b")
            for pair in ending:
                pair.client.calls("disconnect a")
            for pair in asking:
                pair.server.calls(f"silence l {QUIET_MS}")
        for pair in asking:
            pair.accept()
        for pair in (*asking, *answering):
            pair.established()
        for pair in ending:
            pair.disconnected()


def theirs_down(lab: InteropLab):
    """What UCM sends while Linux' link is down comes again when it is up."""
    with pairs(lab, "to_linux4", "to_linux4") as (asking, ending):
        ending.connect()
        with link_down(lab, lab.guest):
            asking.client.calls("connect a")
            ending.client.calls("disconnect a")
            asking.client.calls(f"silence a {QUIET_MS}")
        asking.accept()
        asking.established()
        ending.disconnected()


def linux_sends_while_down(lab: InteropLab):
    """A message that Linux cannot send because its own link is down ends the QP of its connection manager: the program is told at once
    that its disconnection failed, the peer never hears of it, and nothing that comes later is received. A new device is as good as
    any."""
    with pairs(lab, "from_linux4") as (pair,):
        pair.connect()
        with link_down(lab, lab.guest):
            pair.client.calls("disconnect a")
            pair.client.expect("event a", "^DISCONNECTED -110")
        pair.server.calls(f"silence l {QUIET_MS}")
    wait_until(lambda: not lab.guest.identifiers(), "Linux' connection gone")
    with pairs(lab, "to_linux4") as (pair,):
        pair.client.calls("connect a")
        pair.server.calls(f"silence l {QUIET_MS}")
    lab.guest.run("rdma link delete rxe0; rdma link add rxe0 type rxe netdev eth0")
    with pairs(lab, "to_linux4", "from_linux4") as again:
        for pair in again:
            pair.connect()
            pair.disconnect()


def data(lab: InteropLab, path: Path):
    """Data gets lost and is sent again: UCM's link goes down for a moment while rping's client counts."""
    server, client = endless_rping(lab, path)
    with link_down(lab, lab.host):
        pass
    count = int(re.findall(r"rdma-ping-(\d+):", client.output())[-1])
    client.expect(f"rdma-ping-{count + 50}:")
    for program in (client, server):
        program.end()
    nothing_left(lab)


def at_end(name: str):
    def case(lab: InteropLab):
        idle(lab, getattr(lab, name))

    return case


def on_path(kind: str):
    def case(lab: InteropLab):
        data(lab, lab.path(kind))

    return case


CASES = {"idle.guest": at_end("guest"), "idle.host": at_end("host"), "ours_down": ours_down, "theirs_down": theirs_down,
         **{f"data.{kind}": on_path(kind) for kind in PATHS}, "linux_sends_while_down": linux_sends_while_down}
