"""Debian's pyverbs under a program of ours, pyverbs_program.py."""

import pathlib

from catalogue import Missing, Row, cases
from lab import Failure, Lab, Path
from programs import VETH_B_ADDRESS

PACKAGES = {"python3-pyverbs": "44.0"}
# The Python that Debian's packages are for, whichever runs this test.
PROGRAM = ["/usr/bin/python3", "-B", str(pathlib.Path(__file__).with_name("pyverbs_program.py"))]
RUN_S = 60.0


# Field case 8.06
def pair(mode: str, client_address: str | None = None):
    def run(lab: Lab, path: Path):
        server = lab.ucm_run(path.server, *PROGRAM, "server", mode, path.bind_address)
        server.expect("^listening$")
        client = lab.ucm_run(path.client, *PROGRAM, "client", mode, client_address or path.address)
        for side in (client, server):
            if "all as it should be" not in side.succeed(RUN_S):
                raise Failure(f"{side.title}: did not come to its end")

    return run


def queries(lab: Lab, path: Path):
    lab.ucm_run(path.server, *PROGRAM, "queries", "ucm_veth_a").succeed(RUN_S)


ROWS = [
    Row("pyverbs", "device, port, GIDs, PD, MR, CQ, SRQ, QP (RC, UC, UD), AH: made, asked, changed, refused", "small", "", queries),
    Row("pyverbs", "CMID, synchronous: messages back and forth, READ, WRITE", "small", "all", pair("connected")),
    Row("pyverbs", "CMID, asynchronous: a request rejected with private data", "small", "all", pair("rejected")),
    Row("pyverbs", "CMID, asynchronous: RDMA_PS_UDP, answered by an AH from the completion", "small", "CM", pair("datagrams")),
    Row("pyverbs", "CMID, asynchronous: multicast, joined, received, left", "small", "CM", pair("multicast", VETH_B_ADDRESS)),
]
MISSING = [
    Missing("pyverbs", "DM, DmaBufMR, parent domains, flows, WQ", "refused with EOPNOTSUPP"),
]
CASES = cases(PACKAGES, ROWS, short=("small",))
