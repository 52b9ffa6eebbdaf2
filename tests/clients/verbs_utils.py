"""Debian's ibverbs-utils, as they are: programs without a connection manager."""

import re

from catalogue import Missing, Row, cases
from lab import Failure, Lab, Path, wait_until

PACKAGES = {"ibverbs-utils": "44.0"}
EXCHANGE_PORT = 18515  # TCP, where the pingpongs tell one another their QP numbers
RUN_S = 60.0


def wait_tcp(lab: Lab, path: Path, port: int) -> None:
    wait_until(lambda: path.server.run("ss", "-Hltn", f"sport = :{port}").strip(), f"TCP listener on {port}")


def devices(lab: Lab, path: Path):
    lab.ucm_run(path.server, "ibv_devices").expect(r"^\s+ucm_veth_a\s+[0-9a-f]{16}$")


def devinfo(lab: Lab, path: Path):
    text = lab.ucm_run(path.server, "ibv_devinfo", "-v", "-d", "ucm_veth_a").succeed()
    for pattern in (r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet", r"GID\[ *\d+\]:\s+::ffff:10\.77\.0\.1, RoCE v2",
                    r"GID\[ *\d+\]:\s+fd77::1, RoCE v2", r"atomic_cap:\s+ATOMIC_HCA", r"^\s+XRC$"):
        if not re.search(pattern, text, re.MULTILINE):
            raise Failure(f"ibv_devinfo did not print /{pattern}/")


def asyncwatch(lab: Lab, path: Path):
    """Links, addresses and the end of the node, which is a device's fatal error."""
    watch = lab.ucm_run(path.server, "stdbuf", "-oL", "ibv_asyncwatch", "-d", "ucm_veth_a")
    watch.expect(r"async event FD")
    for change, event in (("link set veth_a down", "PORT_ERR"), ("link set veth_a up", "PORT_ACTIVE"),
                          ("address add 10.77.5.1/24 dev veth_a", "GID_CHANGE")):
        path.server.run("ip", *change.split())
        watch.expect(rf"event_type IBV_EVENT_{event} \(\d+\), port 1")
    lab.ucm(path.server, "stop").succeed()
    watch.expect(r"event_type IBV_EVENT_DEVICE_FATAL \(8\)")
    watch.end()


def pingpong(program: str, *options: str, count: int = 300):
    """Both sides check every buffer (-c); the client's closing line says how many went."""

    def run(lab: Lab, path: Path):
        common = [program, "-g", "1", "-n", str(count), *options]
        server = lab.ucm_run(path.server, *common, "-d", "ucm_veth_a")
        wait_tcp(lab, path, EXCHANGE_PORT)
        client = lab.ucm_run(path.client, *common, "-d", "ucm_veth_b", path.address)
        for side in (client, server):
            text = side.succeed(RUN_S)
            if not re.search(rf"^{count} iters in ", text, re.MULTILINE) or "invalid data" in text:
                raise Failure(f"{side.title}: no result, or wrong data")

    return run


def xrc_pingpong(*options: str, count: int = 300):
    """One client; what several would need is below, in MISSING."""

    def run(lab: Lab, path: Path):
        common = ["ibv_xsrq_pingpong", "-g", "1", "-n", str(count), *options]
        server = lab.ucm_run(path.server, *common, "-d", "ucm_veth_a")
        wait_tcp(lab, path, EXCHANGE_PORT)
        client = lab.ucm_run(path.client, *common, "-d", "ucm_veth_b", path.address)
        for side in (client, server):
            if not re.search(r"^success$", side.succeed(RUN_S), re.MULTILINE):
                raise Failure(f"{side.title}: no success")

    return run


ROWS = [
    Row("ibv_devices", "", "devices", "", devices),
    Row("ibv_devinfo", "-v", "devices", "", devinfo),
    Row("ibv_rc_pingpong", "RC", "pingpong", "all", pingpong("ibv_rc_pingpong", "-c")),
    Row("ibv_rc_pingpong", "RC, completion events", "pingpong", "all", pingpong("ibv_rc_pingpong", "-c", "-e")),
    Row("ibv_rc_pingpong", "RC, requests built by ibv_wr_*", "pingpong", "all", pingpong("ibv_rc_pingpong", "-c", "-N")),
    Row("ibv_uc_pingpong", "UC", "pingpong", "CM", pingpong("ibv_uc_pingpong", "-c")),
    Row("ibv_uc_pingpong", "UC, completion events", "pingpong", "CM", pingpong("ibv_uc_pingpong", "-c", "-e")),
    Row("ibv_ud_pingpong", "UD", "pingpong", "CM", pingpong("ibv_ud_pingpong", "-c", "-s", "1024")),
    Row("ibv_ud_pingpong", "UD, completion events", "pingpong", "CM", pingpong("ibv_ud_pingpong", "-c", "-e", "-s", "1024")),
    Row("ibv_srq_pingpong", "16 RC QPs and a shared receive queue", "pingpong", "all", pingpong("ibv_srq_pingpong", "-c")),
    Row("ibv_srq_pingpong", "the same with completion events", "pingpong", "all", pingpong("ibv_srq_pingpong", "-c", "-e")),
    Row("ibv_xsrq_pingpong", "XRC, a shared receive queue at each end", "pingpong", "all", xrc_pingpong()),
    Row("ibv_xsrq_pingpong", "the same with completion events", "pingpong", "all", xrc_pingpong("-e")),
    Row("ibv_asyncwatch", "told of links, addresses, and the node's end", "asyncwatch", "", asyncwatch),
]
MISSING = [
    Missing("ibv_rc_pingpong", "-t", "completions have no time stamps"),
    Missing("ibv_rc_pingpong", "-j", "no device memory"),
    Missing("ibv_rc_pingpong", "-o, -O, -P", "no on-demand paging: memory is the program's own and always there"),
    Missing("ibv_xsrq_pingpong", "-c 2 and more", "reaches one client's queue through another client's QP: an XRC domain "
            "is within one process"),
]
CASES = cases(PACKAGES, ROWS, short=("devices", "pingpong"))
