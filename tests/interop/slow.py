"""Applications that take their time: requests, events and disconnections that are answered after ten seconds, or never."""

import dataclasses
import re

from guest import PATHS, InteropLab
from lab import Failure, Path, Program
from refusals import PORT

LATE = "sleep 10000"
# Linux' patience: sixteen times an interval of up to 6.4 s, on a machine that may be busy.
NEVER_S = 240.0


@dataclasses.dataclass
class Scenario:
    """What both programs call, and the events they must be told. `a` is the client's ID, `b` the server's."""

    server: list[str]
    client: list[str]
    server_told: list[str]
    client_told: list[str]
    server_stays: bool = False  # and is ended once the client is content


CONNECTED = "ESTABLISHED 0"
OVER = "DISCONNECTED 0"

SCENARIOS = {
    "accept_late": Scenario(
        ["event l b", "qp b", LATE, "accept b", "event l", "event l", "disconnect b"],
        ["qp a", "connect a", "event a", "disconnect a", "event a"],
        ["CONNECT_REQUEST 0", CONNECTED, OVER], [CONNECTED, OVER]),
    "request_read_late": Scenario(
        [LATE, "event l b", "qp b", "accept b", "event l", "event l", "disconnect b"],
        ["qp a", "connect a", "event a", "disconnect a", "event a"],
        ["CONNECT_REQUEST 0", CONNECTED, OVER], [CONNECTED, OVER]),
    "established_read_late": Scenario(
        ["event l b", "qp b", "accept b", "event l", "event l", "disconnect b"],
        ["qp a", "connect a", LATE, "event a", "disconnect a", "event a"],
        ["CONNECT_REQUEST 0", CONNECTED, OVER], [CONNECTED, OVER]),
    "reject_late": Scenario(
        ["event l b", LATE, "reject b 148"],
        ["qp a", "connect a", "event a"],
        ["CONNECT_REQUEST 0"], ["REJECTED 28"]),
    "server_disconnects_late": Scenario(
        ["event l b", "qp b", "accept b", "event l", "event l", LATE, "disconnect b"],
        ["qp a", "connect a", "event a", "disconnect a", "event a"],
        ["CONNECT_REQUEST 0", CONNECTED, OVER], [CONNECTED, OVER]),
    "client_disconnects_late": Scenario(
        ["event l b", "qp b", "accept b", "event l", "disconnect b", "event l"],
        ["qp a", "connect a", "event a", "event a", LATE, "disconnect a"],
        ["CONNECT_REQUEST 0", CONNECTED, OVER], [CONNECTED, OVER]),
    "server_never_disconnects": Scenario(
        ["event l b", "qp b", "accept b", "event l", "event l", "silence l 100000000"],
        ["qp a", "connect a", "event a", "disconnect a", "event a"],
        ["CONNECT_REQUEST 0", CONNECTED, OVER], [CONNECTED, "DISCONNECTED -110"], server_stays=True),
    "client_destroys_late": Scenario(
        ["event l b", "qp b", "accept b", "event l", "disconnect b", "event l"],
        ["qp a", "connect a", "event a", "event a", LATE, "destroy a"],
        ["CONNECT_REQUEST 0", CONNECTED, OVER], [CONNECTED, OVER]),
}


def events(program: Program) -> list[str]:
    """What its events were and their status, without the data."""
    return re.findall(r"^event .*: ([A-Z_]+ -?\d+)", program.output(), re.MULTILINE)


def told(program: Program, expected: list[str]) -> None:
    if events(program) != expected:
        raise Failure(f"{program.title} was told {events(program)}, not {expected}")


class Pair:
    """A scenario between two programs on their way."""

    def __init__(self, lab: InteropLab, path: Path, name: str, port: int):
        self.name = name
        self.scenario = SCENARIOS[name]
        self.lab, self.path, self.port = lab, path, port
        self.server = lab.calls(path.server, "id l", f"bind l {path.bind_address} {port}", "listen l 4",
                                *self.scenario.server)

    def connect(self) -> None:
        self.server.expect("^listen l 4: 0")
        self.client = self.lab.calls(self.path.client, "id a", f"resolved a {self.path.address} {self.port}",
                                     *self.scenario.client)

    def check(self) -> None:
        self.client.succeed(NEVER_S)
        told(self.client, self.scenario.client_told)
        if not self.scenario.server_stays:
            self.server.succeed(NEVER_S)
        told(self.server, self.scenario.server_told)
        self.server.end()


def messages(lab: InteropLab, direction: str) -> dict[str, int]:
    """How many messages of each kind Linux has sent (`tx_msgs`) or received (`rx_msgs`)."""
    told = lab.guest.run(f"cd /sys/class/infiniband/rxe0/ports/1/cm_{direction}; grep . *")
    return {name: int(count) for name, count in (line.split(":") for line in told.splitlines())}


def side_by_side(lab: InteropLab):
    """All scenarios on all paths at once. Both sides ask for patience, with MRA, when a message comes again that their
    application has not answered; and both grant it."""
    before = {direction: messages(lab, direction) for direction in ("tx_msgs", "rx_msgs")}
    ports = iter(range(PORT, PORT + 1000))
    pairs = [(kind, Pair(lab, lab.path(kind), name, next(ports))) for name in SCENARIOS for kind in PATHS]
    for _, pair in pairs:
        pair.connect()
    for kind, pair in pairs:
        pair.check()
        print(f"  {pair.name}.{kind}")
    for direction, count in before.items():
        after = messages(lab, direction)
        print(f"  Linux' {direction}: {after['mra'] - count['mra']} MRA, {after['req'] - count['req']} REQ")
        if after["mra"] == count["mra"]:
            raise Failure(f"no MRA among Linux' {direction}")


CASES = {case.__name__: case for case in (side_by_side,)}
