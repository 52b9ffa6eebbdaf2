"""Daemons that are killed again and again, and programs that do not notice."""

import re
import time

from lab import Failure, Lab, Namespace, Program, wait_until
from programs import RPING_PORT, rping, ucmatose


def pings(program: Program) -> int:
    return len(re.findall(r"^ping data: ", program.output(), re.MULTILINE))


def goes_on(client: Program) -> None:
    """Data flows now."""
    before = pings(client)
    wait_until(lambda: pings(client) > before + 2, f"{client.title}: data goes on")


def endless_rping(lab: Lab, path) -> tuple[Program, Program]:
    server = lab.ucm_run(path.server, "rping", "-s", "-a", path.bind_address)
    lab.wait_listening(path.server, RPING_PORT)
    client = lab.ucm_run(path.client, "rping", "-c", "-v", "-C", "100000000", "-a", path.address)
    goes_on(client)
    return server, client


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


CASES = {
    "established.veth4": lambda lab: established(lab, "veth4"),
    "established.loopback6": lambda lab: established(lab, "loopback6"),
    "killed_at_work": lambda lab: killed_at_work(lab, 20),
}
for case in CASES.values():
    case.short = True
