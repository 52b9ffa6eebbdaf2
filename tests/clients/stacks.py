"""What is built on verbs: qperf, fio, libfabric and UCX, as Debian ships them."""

import re

from catalogue import Missing, Row, cases
from lab import Failure, Lab, Path, wait_until
from verbs_utils import wait_tcp

PACKAGES = {"qperf": "0.4.11", "fio": "3.33", "libfabric-bin": "1.17.0", "ucx-utils": "1.13.1"}
RUN_S = 60.0
QPERF_PORT = 19765
FIO_PORT = 4455
FABRIC_PORT = 47592
UCX_PORT = 13337
IO_DEMO_PORT = 20000
ATTEMPTS = 8
# One second each.
QPERF_TESTS = ("rc_bw", "rc_bi_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_read_lat", "rc_rdma_write_bw", "rc_rdma_write_lat",
               "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add")


def qperf(test: str):
    """A line of results with a unit. Debian's server tells its port before it listens there; when the client is quicker, it
    is refused (as it would be by a kernel), and both give up."""

    def attempt(lab: Lab, path: Path) -> str | None:
        server = lab.ucm_run(path.server, "qperf")
        wait_tcp(lab, path, QPERF_PORT)
        client = lab.ucm_run(path.client, "qperf", path.address, "-t", "1", "-cm1", test)
        refused = client.wait(RUN_S) != 0 and "Event rejected" in client.output()
        server.end()
        return None if refused else client.succeed()

    def run(lab: Lab, path: Path):
        text = next(filter(None, (attempt(lab, path) for _ in range(ATTEMPTS))), "")
        if not re.search(rf"^{test}:\n +(bw|latency|msg_rate) += +[\d.]+ \S+", text, re.MULTILINE):
            raise Failure("qperf told no result")

    return run


def fio(verb: str, size_kib: int = 2048):
    """The client has moved all of its bytes without an error; of a send so has the server."""
    server_options = ["--verb=recv"] if verb == "send" else []

    def run(lab: Lab, path: Path):
        common = ["--ioengine=rdma", f"--port={FIO_PORT}", "--bs=64k", f"--size={size_kib}k"]
        server = lab.ucm_run(path.server, "fio", "--name=server", *common, "--rw=read", "--iodepth=16", *server_options)
        lab.wait_listening(path.server, FIO_PORT)
        client = lab.ucm_run(path.client, "fio", "--name=client", *common, "--rw=write", "--iodepth=1",
                             "--iodepth_batch_complete=1", f"--hostname={path.address}", f"--verb={verb}")
        for side in (client, server):
            if "err= 0" not in side.succeed(RUN_S):
                raise Failure(f"{side.title}: an error")
        for side in (client, server) if verb == "send" else (client,):
            if not re.search(rf"issued rwts: total=(0,)?{size_kib // 64},", side.output()):
                raise Failure(f"{side.title}: not all of the blocks")

    return run


def fi_info(lab: Lab, path: Path):
    text = lab.ucm_run(path.server, "fi_info", "-p", "verbs").succeed()
    for protocol in ("FI_PROTO_RDMA_CM_IB_RC", "FI_PROTO_IB_UD"):
        if not re.search(rf"domain: ucm_veth_a.*\n.*\n.*\n.*{protocol}", text):
            raise Failure(f"fi_info does not tell of {protocol}")


def fi_pingpong(provider: str, endpoint: str, domain: str = "", settings: tuple[str, ...] = ()):
    """-c: every message is checked. `domain`: what the device's name is followed by, in the domain to use."""

    def run(lab: Lab, path: Path):
        common = ["env", *settings, "fi_pingpong", "-p", provider, "-e", endpoint, "-I", "20", "-c"]
        domains = [["-d", f"ucm_veth_{side}{domain}"] if domain else [] for side in "ab"]
        server = lab.ucm_run(path.server, *common, *domains[0])
        wait_tcp(lab, path, FABRIC_PORT)
        client = lab.ucm_run(path.client, *common, *domains[1], path.address)
        for side in (client, server):
            sizes = re.findall(r"^(\w+) +20 +=20 ", side.succeed(RUN_S), re.MULTILINE)
            if sizes != ["64", "256", "1k", "4k", "64k", "1m"]:
                raise Failure(f"{side.title}: results for {sizes}")

    return run


def ucx(lab: Lab, space, *argv: str):
    """UCX wants a device to have a node in /dev/infiniband, and drops datagrams over IPv4 (MISSING has the reason): so it gets an
    IPv6 GID (fd77::1, fd77::2)."""
    device = f"ucm_veth_{space.name}"
    return lab.ucm_run(space, *lab.with_device_nodes(device), "env", "UCX_TLS=rc_verbs,ud_verbs", f"UCX_NET_DEVICES={device}:1",
                       "UCX_IB_GID_INDEX=2", "UCX_SOCKADDR_TLS_PRIORITY=rdmacm", *argv)


def ucx_info(lab: Lab, path: Path):
    text = ucx(lab, path.server, "ucx_info", "-d").succeed()
    for transport in ("rc_verbs", "ud_verbs"):
        if not re.search(rf"Transport: {transport}\n# +Device: ucm_veth_a:1", text):
            raise Failure(f"ucx_info does not tell of {transport}")


def ucx_perftest(*arguments: str, count: int = 500):
    def run(lab: Lab, path: Path):
        server = ucx(lab, path.server, "ucx_perftest")
        wait_tcp(lab, path, UCX_PORT)
        text = ucx(lab, path.client, "ucx_perftest", path.address, "-n", str(count), *arguments).succeed(RUN_S)
        if not re.search(rf"^Final: +{count} ", text, re.MULTILINE):
            raise Failure("ucx_perftest told no result")
        server.succeed()

    return run


def io_demo(lab: Lab, path: Path):
    """Connections by rdma_cm; -v: the data is checked. The server does not end by itself."""
    server = ucx(lab, path.server, "io_demo", "-v", "-p", str(IO_DEMO_PORT))
    lab.wait_listening(path.server, IO_DEMO_PORT)
    client = ucx(lab, path.client, "io_demo", "-v", "-p", str(IO_DEMO_PORT), "-o", "read,write", "-i", "100", path.address)
    text = client.succeed(RUN_S)
    if "Client exit with status 'OK'" not in text or not re.search(r"total min:100 max:100 total:100", text):
        raise Failure("io_demo did not do its 100 operations")
    server.end()


ROWS = [
    *(Row("qperf -cm1", test, "qperf", "all", qperf(test)) for test in QPERF_TESTS),
    Row("fio ioengine=rdma", "verb=write", "fio", "all", fio("write")),
    Row("fio ioengine=rdma", "verb=read", "fio", "all", fio("read")),
    Row("fio ioengine=rdma", "verb=send", "fio", "all", fio("send")),
    Row("fi_info", "-p verbs: RC and UD endpoints", "libfabric", "", fi_info),
    Row("fi_pingpong", "-p verbs -e msg", "libfabric", "all", fi_pingpong("verbs", "msg")),
    Row("fi_pingpong", "-p verbs;ofi_rxm -e rdm", "libfabric", "all", fi_pingpong("verbs;ofi_rxm", "rdm")),
    Row("fi_pingpong", "the same over XRC (the domain `DEVICE-xrc`, `FI_OFI_RXM_USE_SRX=1`)", "libfabric",
        "all", fi_pingpong("verbs;ofi_rxm", "rdm", "-xrc", ("FI_OFI_RXM_USE_SRX=1", "FI_VERBS_PREFER_XRC=1"))),
    Row("ucx_info", "-d: rc_verbs and ud_verbs", "ucx", "", ucx_info),
    Row("ucx_perftest", "tag_lat over rc_verbs", "ucx", "all", ucx_perftest("-t", "tag_lat")),
    Row("ucx_perftest", "put bandwidth of 64 KiB", "ucx", "all", ucx_perftest("-t", "ucp_put_bw", "-s", "65536")),
    Row("io_demo", "reads and writes, connected by rdmacm", "ucx", "all", io_demo),
]
MISSING = [
    Missing("qperf", "without -cm1, and so uc_* and ud_*", "it addresses by LID alone, which no RoCE device has"),
    Missing("qperf", "xrc_*", "as uc_*: -cm1 is for RC"),
    Missing("fi_pingpong", "-p verbs -e msg over XRC", "libfabric has XRC for endpoints with a shared receive context only"),
    Missing("fi_pingpong", "-p verbs -e dgram", "libfabric exchanges LIDs for it, which no RoCE device has"),
    Missing("UCX", "an IPv4 GID", "version 1.13 takes the kind of a datagram's IP header from `sl` of its completion, where the "
            "devices of one vendor tell it, and drops IPv4 ones of others; with `UCX_IB_GID_INDEX` naming an IPv6 GID it works. "
            "It also wants `/dev/infiniband/NAME` to be a character device; a link to `/dev/null` does"),
]
CASES = cases(PACKAGES, ROWS, short=("fio",))
