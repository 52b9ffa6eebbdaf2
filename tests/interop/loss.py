"""Packets that get lost, come twice or overtake each other on the way between UCM and Linux, in both directions at once."""

import contextlib
import re

from guest import PATHS, InteropLab
from lab import Failure, Path
from programs import rping, ucmatose

FAULTS = {"loss1": "loss 1%", "loss10": "loss 10%", "duplicate": "duplicate 10%", "reorder": "delay 2ms reorder 75%"}


@contextlib.contextmanager
def bad_network(lab: InteropLab, faults: str):
    """The machine's kernel spoils what it sends, and, on the detour over ifb0, what it receives."""
    lab.guest.run(f"""set -e
        modprobe -a ifb sch_netem sch_ingress act_mirred cls_matchall
        [ -e /sys/class/net/ifb0 ] || ip link add ifb0 type ifb
        ip link set ifb0 up
        tc qdisc add dev ifb0 root netem {faults}
        tc qdisc add dev eth0 ingress
        tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0
        tc qdisc add dev eth0 root netem {faults}""")
    try:
        yield
    finally:
        lab.guest.run("tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; tc qdisc del dev ifb0 root")


def connects(lab: InteropLab, path: Path, faults: str):
    """Everything still connects, transfers right data and disconnects."""
    with bad_network(lab, faults):
        rping(lab, path, "-S", "3000", count=30, timeout_s=200)
        ucmatose(lab, path, "-c", "10", "-C", "5", "-S", "2000", timeout_s=200)
        lost = 0
        for device in ("eth0", "ifb0"):
            through = lab.guest.run(f"tc -s qdisc show dev {device} root")
            sent, dropped = (int(number) for number in re.search(r"(\d+) pkt \(dropped (\d+)", through).groups())
            lost += dropped
            if sent < 100:
                raise Failure(f"{device} was not on the way:\n{through}")
        if "loss" in faults and lost == 0:
            raise Failure("nothing was lost")


def on_path(kind: str, faults: str):
    def case(lab: InteropLab):
        connects(lab, lab.path(kind), faults)

    return case


CASES = {f"{name}.{kind}": on_path(kind, faults) for name, faults in FAULTS.items() for kind in PATHS if kind.endswith("4")}
