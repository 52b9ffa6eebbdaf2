"""Datagrams that get lost, come twice or in another order, and peers that are not there."""

import re
import time

from lab import Failure, Lab
from programs import RPING_PORT, rping, ucmatose

FAULTS = ("--faults", "loss=5,duplicate=2,reorder=2,seed=1")


def rping_on_bad_network(lab: Lab):
    path = lab.path("veth4")
    rping(lab, path, "-v", "-S", "100", count=300, options=FAULTS)
    rping(lab, path, "-S", "20000", count=30, options=FAULTS)


def ucmatose_on_bad_network(lab: Lab):
    ucmatose(lab, lab.path("veth6"), "-c", "50", "-C", "20", "-S", "4096", options=FAULTS)


def small_on_bad_network(lab: Lab):
    path = lab.path("veth4")
    rping(lab, path, "-v", "-S", "100", count=50, options=FAULTS)
    ucmatose(lab, path, "-c", "5", "-C", "5", "-S", "4096", options=FAULTS)


def nobody_listens(lab: Lab):
    """An answer, and at once: no timeout decides."""
    for kind in ("loopback4", "veth6"):
        path = lab.path(kind)
        for space in {path.server, path.client}:
            lab.ucm_run(space, "true").succeed()  # starts the daemon
        started = time.monotonic()
        client = lab.ucm_run(path.client, "rping", "-c", "-d", "-C", "1", "-a", path.address)
        client.expect(r"RDMA_CM_EVENT_REJECTED, error 8\b")
        if client.wait() == 0:
            raise Failure("rping succeeded without a server")
        if time.monotonic() - started > 1.0 and not lab.sanitizer:
            raise Failure("the refusal took more than a second")


def no_neighbour(lab: Lab):
    """Nobody has the address: rping's own timeout of two seconds ends the resolution."""
    _, client = lab.veth_pair()
    lab.ucm_run(client, "true").succeed()
    started = time.monotonic()
    program = lab.ucm_run(client, "rping", "-c", "-d", "-C", "1", "-a", "10.77.0.99")
    program.expect(r"RDMA_CM_EVENT_ADDR_ERROR, error -110\b")
    if program.wait() == 0:
        raise Failure("rping succeeded without a server")
    if not 1.5 < time.monotonic() - started < 5.0:
        raise Failure("not after the two seconds that rping allows")


def no_route(lab: Lab):
    """No route to the address: the call itself says so."""
    space = lab.namespace("a")
    program = lab.ucm_run(space, "rping", "-c", "-C", "1", "-a", "192.0.2.1")
    if program.wait() == 0:
        raise Failure("rping succeeded without a route")
    if not re.search(r"rdma_resolve_addr|ADDR_ERROR", program.output()):
        raise Failure("rping failed for another reason")


CASES = {case.__name__: case for case in (
    rping_on_bad_network, ucmatose_on_bad_network, small_on_bad_network, nobody_listens, no_neighbour, no_route)}
for case in CASES.values():
    case.short = case in (small_on_bad_network, nobody_listens)
