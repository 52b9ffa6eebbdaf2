"""Daemons that are killed again and again, crowds of programs, and programs that do not notice."""

import pathlib
import re
import signal
import time

from lab import Failure, Lab, Namespace, wait_until
from programs import endless_rping, goes_on

LOAD_PORT = 7600
# A machine that is busy with other tests, ten thousand connections.
LOAD_S = 240.0


def nothing_left(lab: Lab, *spaces: Namespace) -> None:
    """Once no program runs any more, the node holds nothing, and keeps nothing for its successor."""
    for space in spaces:
        wait_until(lambda space=space: "Held: all zero" in lab.status(space), "nothing held")
        wait_until(lambda space=space: descriptors_of(space, "ucm-holder") == kept_by_an_idle_node(space),
                           "nothing kept")


def descriptors_of(space: Namespace, name: str) -> int:
    return len(space.run("ls", f"/proc/{space.process_named(name)}/fd").split())


def kept_by_an_idle_node(space: Namespace) -> int:
    """Standard input, output and error, the way to ucmd, the journal, the control socket, and four UDP sockets."""
    has_ipv6 = ":12B7 " in space.run("cat", "/proc/net/udp6")
    return 10 if has_ipv6 else 8


def holdings(space: Namespace) -> dict[str, int]:
    """What the namespace's ucmd holds of the system: descriptors, and memory that it shares."""
    maps = pathlib.Path(f"/proc/{space.process_named('ucmd')}/maps").read_text()
    return {"descriptors": descriptors_of(space, "ucmd"), "shared memory": maps.count("/memfd:")}


def idle_holdings(lab: Lab, space: Namespace) -> dict[str, int]:
    lab.ucm_run(space, "true").succeed()
    wait_until(lambda: "Held: all zero" in lab.status(space), "a node without programs")
    return holdings(space)


def established(lab: Lab, kind: str):
    """Connections and listeners live on when their daemons die, on either side, and can be ended afterwards."""
    path = lab.path(kind)
    waiting = lab.ucm_run(path.server, "rping", "-s", "-p", "7000", "-a", path.bind_address, "-C", "10")
    lab.wait_listening(path.server, 7000)
    server, client = endless_rping(lab, path)
    for space in (path.server, path.client):
        space.kill_daemon()
        goes_on(client)
    # The listener takes connections still.
    lab.ucm_run(path.client, "rping", "-c", "-p", "7000", "-a", path.address, "-C", "10").succeed()
    waiting.succeed()
    # The disconnection reaches the peer.
    client.end()
    server.expect("DISCONNECT EVENT")
    server.wait()
    nothing_left(lab, path.server, path.client)


def killed_at_work(lab: Lab, kills: int):
    """Whenever a daemon dies, whatever it is doing: established connections live on, and those in set-up come about."""
    path = lab.path("veth4")
    server, client = endless_rping(lab, path)
    for number in range(kills):
        listening = lab.ucm_run(path.server, "ucmatose", "-b", path.bind_address, "-c", "20", "-C", "10", "-p", "7500")
        lab.wait_listening(path.server, 7500)
        connecting = lab.ucm_run(path.client, "ucmatose", "-s", path.address, "-c", "20", "-C", "10", "-p", "7500")
        # Each time a little later in its work.
        time.sleep(number % 10 * 0.01)
        (path.server if number % 2 else path.client).kill_daemon()
        connecting.succeed()
        listening.succeed()
        for done in (connecting, listening):
            lab.programs.remove(done)
        goes_on(client)
    client.end()
    server.expect("DISCONNECT EVENT")
    server.wait()
    nothing_left(lab, path.server, path.client)


class Load:
    """A pair of cm_load: `held` connections with data, and beside them `in_set_up` at any time."""

    def __init__(self, lab: Lab, path, held: int, in_set_up: int):
        program = lab.executable("cm_load")
        self.server = lab.ucm_run(path.server, program, "server", path.bind_address, str(LOAD_PORT))
        lab.wait_listening(path.server, LOAD_PORT)
        self.client = lab.ucm_run(path.client, program, "client", path.address, str(LOAD_PORT), str(held), str(in_set_up))
        self.client.expect("^goes on", LOAD_S)

    def told(self) -> tuple[int, int]:
        """Messages that came back, and connections that came about."""
        last = re.findall(r"^\S.*: (\d+) messages, (\d+) set up, \d+ failed$", self.client.output(), re.MULTILINE)[-1]
        return int(last[0]), int(last[1])

    def goes_on(self) -> None:
        """More of both than were on their way."""
        messages, set_up = self.told()

        def more() -> bool:
            if not self.client.running():
                raise Failure(f"the client has ended: {self.client.output()[-300:]}")
            now = self.told()
            return now[0] > messages + 64 and now[1] > set_up

        wait_until(more, "data and set-ups go on", LOAD_S)

    def end(self) -> None:
        """Each set-up that has begun comes to its end, and so do the connections."""
        for program in (self.client, self.server):
            program.signal(signal.SIGTERM)
            program.succeed(LOAD_S)
            program.expect("^done")


def under_load(lab: Lab, held: int, in_set_up: int, kills: int):
    """Daemons that are killed in turn: no connection is lost, no message lost or doubled, no set-up without an end, no leak."""
    path = lab.path("veth4")
    spaces = (path.server, path.client)
    idle = [idle_holdings(lab, space) for space in spaces]
    load = Load(lab, path, held, in_set_up)
    for number in range(kills):
        load.goes_on()
        # Each time a little later in its work.
        time.sleep(number % 10 * 0.003)
        spaces[number % 2].kill_daemon()
    load.goes_on()
    load.end()
    nothing_left(lab, *spaces)
    left = [holdings(space) for space in spaces]
    if left != idle:
        raise Failure(f"ucmd holds {left}, without any program ever {idle}")


# Starts as many clients at once; says how many have not succeeded.
CROWD = """
for i in $(seq "$1"); do "$2" client "$3" "$4" 1 0 10 & done
failed=0
for job in $(jobs -p); do wait "$job" || failed=$((failed + 1)); done
echo "failed: $failed of $1"
"""


def crowd(lab: Lab, clients: int):
    """Many programs at once are all served, and another pair goes on meanwhile."""
    path = lab.path("loopback4")
    idle = idle_holdings(lab, path.server)
    server, client = endless_rping(lab, path)
    program = lab.executable("cm_load")
    listening = lab.ucm_run(path.server, program, "server", path.bind_address, str(LOAD_PORT))
    lab.wait_listening(path.server, LOAD_PORT)
    many = lab.ucm_run(path.client, "bash", "-c", CROWD, "crowd", str(clients), program, path.address, str(LOAD_PORT))
    while many.running():
        goes_on(client)
    many.succeed()
    many.expect(f"^failed: 0 of {clients}$")
    listening.signal(signal.SIGTERM)
    listening.succeed()
    client.end()
    server.wait()
    nothing_left(lab, path.server)
    if holdings(path.server) != idle:
        raise Failure(f"ucmd holds {holdings(path.server)}, without any program ever {idle}")


CASES = {
    "established.veth4": lambda lab: established(lab, "veth4"),
    "established.loopback6": lambda lab: established(lab, "loopback6"),
    "killed_at_work": lambda lab: killed_at_work(lab, 20),
    "under_load.20_kills": lambda lab: under_load(lab, 50, 50, 20),
    "under_load.200_kills": lambda lab: under_load(lab, 200, 100, 200),
    "under_load.10000_held": lambda lab: under_load(lab, 10_000, 2_000, 2),
    "crowd.hundred": lambda lab: crowd(lab, 100),
    "crowd.thousand": lambda lab: crowd(lab, 1_000),
}
for name, case in CASES.items():
    case.long = name in ("under_load.200_kills", "under_load.10000_held", "crowd.thousand")
    case.short = not case.long
