"""Packets that get lost, come twice or overtake each other on the way between UCM and Linux, in both directions at once; and how
long connections take then, beside Linux with Linux."""

import contextlib
import re

from guest import PATHS, InteropLab
from lab import Failure, Path
from programs import RPING_PORT, cmtime, pair, ucmatose

FAULTS = {"loss1": "loss 1%", "loss10": "loss 10%", "duplicate": "duplicate 10%", "reorder": "delay 2ms reorder 75%"}
PINGS = 30
LOSSY_S = 200.0


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


def verified_pings(lab: InteropLab, path: Path):
    """rping's client disconnects and destroys its ID at once. UCM repeats the DREQ; Linux' is lost now and then, and then the
    server does not hear of the end."""
    common = ["-V", "-C", str(PINGS), "-S", "3000"]
    server, client = pair(lab, path, ["rping", "-s", "-a", path.bind_address, *common],
                          ["rping", "-c", "-a", path.address, *common], RPING_PORT, "root")
    client.succeed(LOSSY_S)
    if path.client is lab.host:
        server.succeed(LOSSY_S)
    server.end()


def connects(lab: InteropLab, path: Path, faults: str):
    """Everything still connects, transfers right data and disconnects."""
    with bad_network(lab, faults):
        verified_pings(lab, path)
        ucmatose(lab, path, "-c", "10", "-C", "5", "-S", "2000", timeout_s=LOSSY_S)
        lost = 0
        for device in ("eth0", "ifb0"):
            through = lab.guest.run(f"tc -s qdisc show dev {device} root")
            sent, dropped = (int(number) for number in re.search(r"(\d+) pkt \(dropped (\d+)", through).groups())
            lost += dropped
            if sent < 100:
                raise Failure(f"{device} was not on the way:\n{through}")
        if "loss" in faults and lost == 0:
            raise Failure("nothing was lost")


# Two rxe devices, rxa and rxb, on the two ends of a veth in the machine's only namespace where rxe listens: routing by rules sends
# packets over it although they are for this host. `oif` is for rdma_cm's check of the way back.
TWO_DEVICES = """set -e
    modprobe -a veth sch_netem
    ip link add va type veth peer name vb
    ip address add 10.78.0.1/24 dev va noprefixroute; ip address add fd78::1/128 dev va nodad noprefixroute
    ip address add 10.78.1.1/24 dev vb noprefixroute; ip address add fd78:1::1/128 dev vb nodad noprefixroute
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    for device in va vb; do
      echo 1 >/proc/sys/net/ipv4/conf/$device/accept_local; echo 0 >/proc/sys/net/ipv4/conf/$device/rp_filter
      echo 1 >/proc/sys/net/ipv4/conf/$device/arp_ignore
      ip link set $device up
    done
    rules() {
      ip $1 rule add pref 100 lookup local; ip $1 rule del pref 0 lookup local
      ip $1 rule add pref 10 iif lo to $3 lookup 201; ip $1 rule add pref 10 iif lo to $2 lookup 202
      ip $1 rule add pref 12 oif va lookup 201; ip $1 rule add pref 12 oif vb lookup 202
      ip $1 route add $3 dev va src $2 table 201; ip $1 route add $2 dev vb src $3 table 202
      ip $1 neigh replace $3 lladdr $(cat /sys/class/net/vb/address) dev va nud permanent
      ip $1 neigh replace $2 lladdr $(cat /sys/class/net/va/address) dev vb nud permanent
    }
    rules -4 10.78.0.1 10.78.1.1; rules -6 fd78::1 fd78:1::1
    rdma link add rxa type rxe netdev va; rdma link add rxb type rxe netdev vb"""
ONE_DEVICE = """rdma link delete rxa; rdma link delete rxb; ip link delete va
    for family in -4 -6; do
      ip $family rule add pref 0 lookup local
      ip $family rule del pref 100; for count in 1 2; do ip $family rule del pref 10; ip $family rule del pref 12; done
    done"""


@contextlib.contextmanager
def linux_with_linux(lab: InteropLab, faults: str):
    """The paths between the machine's two devices."""
    lab.guest.run(TWO_DEVICES)
    try:
        lab.guest.run("".join(f"tc qdisc add dev {device} root netem {faults}\n" for device in ("va", "vb")))
        yield {version: Path(lab.guest, lab.guest, address, address) for version, address in (("4", "10.78.1.1"), ("6", "fd78:1::1"))}
    finally:
        lab.guest.run(ONE_DEVICE)


def steps(table: str) -> str:
    """Of cmtime's: the milliseconds until the last of the connections is through."""
    return ", ".join(f"{step} {float(re.search(rf'^{step} *: *([0-9.]+)', table, re.MULTILINE)[1]):.0f} ms" for step in ("connect", "disconnect"))


def compared(lab: InteropLab, faults: str):
    """All of 100 connections are made and ended, by UCM and Linux as by Linux and Linux; docs/conformance.md has the times."""
    with bad_network(lab, faults):
        for kind in PATHS:
            print(f"  {kind}, {faults}: {steps(cmtime(lab, lab.path(kind), '-c', '100', timeout_s=LOSSY_S))}")
    with linux_with_linux(lab, faults) as paths:
        for version, path in paths.items():
            print(f"  Linux with Linux, IPv{version}, {faults}: {steps(cmtime(lab, path, '-c', '100', timeout_s=LOSSY_S))}")


def on_path(kind: str, faults: str):
    def case(lab: InteropLab):
        connects(lab, lab.path(kind), faults)

    return case


def with_baseline(faults: str):
    def case(lab: InteropLab):
        compared(lab, faults)

    return case


CASES = {f"{name}.{kind}": on_path(kind, faults) for name, faults in FAULTS.items() for kind in PATHS}
CASES |= {f"compared.{name}": with_baseline(FAULTS[name]) for name in ("loss1", "loss10")}
