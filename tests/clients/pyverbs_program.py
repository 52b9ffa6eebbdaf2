#!/usr/bin/python3
"""A program on Debian's pyverbs, which runs over UCM as any would: one side of a connection, or questions to a device.

    pyverbs_program.py server|client connected|datagrams|rejected|multicast ADDRESS
    pyverbs_program.py queries DEVICE
"""

import errno
import re
import struct
import sys

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam, UDParam
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

PORT = "7480"
SIZE = 4096
MESSAGES = 20
GRH = 40
GROUP = "239.7.7.7"
MULTICAST_QPN = 0xFFFFFF
REFUSAL = b"not today"
WHERE = struct.Struct("!QI")  # address and key of memory


def check(condition, what: str) -> None:
    if not condition:
        raise SystemExit(f"wrong: {what}")


def pattern(number: int) -> bytes:
    return bytes((number + 7 * i) % 251 for i in range(SIZE))


def target(role: str, address: str, space: int = ce.RDMA_PS_TCP) -> AddrInfo:
    if role == "server":
        return AddrInfo(src=address, src_service=PORT, port_space=space, flags=ce.RAI_PASSIVE)
    return AddrInfo(dst=address, dst_service=PORT, port_space=space)


def attributes(kind: int = e.IBV_QPT_RC) -> QPInitAttr:
    return QPInitAttr(qp_type=kind, cap=QPCap(max_recv_wr=4))


def connect(role: str, address: str) -> tuple[CMID, CMID | None, list[MR]]:
    """The connected ID, and of a server the listener that must live as long, and two regions, the first of which receives."""
    if role == "client":
        cmid = CMID(creator=target(role, address), qp_init_attr=attributes())
        cmid.connect(ConnParam())
        return cmid, None, []
    listener = CMID(creator=target(role, address), qp_init_attr=attributes())
    listener.listen()
    print("listening", flush=True)
    cmid = listener.get_request()
    # One receive is posted ahead of every message: what comes without one is sent again after 655 ms.
    regions = [cmid.reg_msgs(SIZE), cmid.reg_msgs(SIZE)]
    cmid.post_recv(regions[0])
    cmid.accept(ConnParam())
    return cmid, listener, regions


def send(cmid: CMID, region: MR, data: bytes) -> None:
    region.write(data, len(data))
    cmid.post_send(region, length=len(data))
    check(cmid.get_send_comp().status == e.IBV_WC_SUCCESS, "status of a send")


def receive(cmid: CMID, region: MR, size: int = SIZE) -> bytes:
    completion = cmid.get_recv_comp()
    check(completion.status == e.IBV_WC_SUCCESS and completion.byte_len == size, "completion of a receive")
    return region.read(size, 0)


def connected_server(cmid: CMID, incoming: list[MR]) -> None:
    """Sends everything back, then lets its memory be read and written."""
    outgoing = cmid.reg_msgs(SIZE)
    readable, writable = cmid.reg_read(SIZE), cmid.reg_write(SIZE)
    readable.write(pattern(1000), SIZE)
    for number in range(MESSAGES):
        received = receive(cmid, incoming[number % 2])
        cmid.post_recv(incoming[(number + 1) % 2])
        send(cmid, outgoing, received)
    send(cmid, outgoing, WHERE.pack(readable.buf, readable.rkey) + WHERE.pack(writable.buf, writable.rkey))
    receive(cmid, incoming[MESSAGES % 2], 4)
    check(writable.read(SIZE, 0) == pattern(2000), "what a WRITE wrote")


def connected_client(cmid: CMID) -> None:
    incoming, outgoing = cmid.reg_msgs(SIZE), cmid.reg_msgs(SIZE)
    for number in range(MESSAGES):
        cmid.post_recv(incoming)
        if number == MESSAGES - 1:
            cmid.post_recv(last := cmid.reg_msgs(SIZE))
        send(cmid, outgoing, pattern(number))
        check(receive(cmid, incoming) == pattern(number), "a message that came back")
    where = receive(cmid, last, 2 * WHERE.size)
    address, key = WHERE.unpack(where[:WHERE.size])
    local = cmid.reg_msgs(SIZE)
    cmid.post_read(local, SIZE, address, key, flags=e.IBV_SEND_SIGNALED)
    check(cmid.get_send_comp().status == e.IBV_WC_SUCCESS, "status of a READ")
    check(local.read(SIZE, 0) == pattern(1000), "what a READ read")
    address, key = WHERE.unpack(where[WHERE.size:])
    local.write(pattern(2000), SIZE)
    cmid.post_write(local, SIZE, address, key, flags=e.IBV_SEND_SIGNALED)
    check(cmid.get_send_comp().status == e.IBV_WC_SUCCESS, "status of a WRITE")
    send(cmid, outgoing, b"done")


def connected(role: str, address: str) -> None:
    cmid, listener, regions = connect(role, address)
    if role == "server":
        connected_server(cmid, regions)
    else:
        connected_client(cmid)
    cmid.disconnect()
    cmid.close()
    if listener:
        listener.close()


class Events:
    """The asynchronous interface: an ID on a channel, and one expected event after the other."""

    def __init__(self, space: int):
        self.channel = CMEventChannel()
        self.cmid = CMID(creator=self.channel, port_space=space)

    def expect(self, kind: int) -> CMEvent:
        event = CMEvent(self.channel)
        check(event.event_type == kind, f"{event.event_str()}, where {kind} was due")
        return event

    def listen(self, address: str, space: int) -> CMEvent:
        self.cmid.bind_addr(target("server", address, space))
        self.cmid.listen()
        print("listening", flush=True)
        return self.expect(ce.RDMA_CM_EVENT_CONNECT_REQUEST)

    def connect(self, address: str, space: int, kind: int) -> None:
        self.cmid.resolve_addr(target("client", address, space))
        self.expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
        self.cmid.resolve_route()
        self.expect(ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
        self.cmid.create_qp(attributes(kind))
        self.cmid.connect(ConnParam())


def rejected(role: str, address: str) -> None:
    events = Events(ce.RDMA_PS_TCP)
    if role == "server":
        request = events.listen(address, ce.RDMA_PS_TCP)
        child = CMID(creator=request, listen_id=events.cmid)
        child.reject(REFUSAL)
        request.ack_cm_event()
        child.close()
        return
    events.connect(address, ce.RDMA_PS_TCP, e.IBV_QPT_RC)
    event = events.expect(ce.RDMA_CM_EVENT_REJECTED)
    check(event.private_data[:len(REFUSAL)] == REFUSAL, "the words of the refusal")
    event.ack_cm_event()


def datagrams(role: str, address: str) -> None:
    events = Events(ce.RDMA_PS_UDP)
    size = 1000
    if role == "server":
        request = events.listen(address, ce.RDMA_PS_UDP)
        cmid = CMID(creator=request, listen_id=events.cmid)
        cmid.create_qp(attributes(e.IBV_QPT_UD))
        region = cmid.reg_msgs(size + GRH)
        cmid.post_recv(region)
        cmid.accept(ConnParam(qp_num=cmid.qpn))
        request.ack_cm_event()
        completion = cmid.get_recv_comp()
        check(completion.byte_len == size + GRH, "length of a datagram")
        ah = AH(cmid.pd, wc=completion, port_num=1, grh=region.buf)
        # The same bytes go back to where they came from.
        answer = cmid.reg_msgs(size)
        answer.write(region.read(size, GRH), size)
        cmid.post_ud_send(answer, ah, rqpn=completion.src_qp, length=size)
        cmid.get_send_comp()
        return
    events.connect(address, ce.RDMA_PS_UDP, e.IBV_QPT_UD)
    event = events.expect(ce.RDMA_CM_EVENT_ESTABLISHED)
    peer = UDParam(event)
    event.ack_cm_event()
    cmid = events.cmid
    incoming, outgoing = cmid.reg_msgs(size + GRH), cmid.reg_msgs(size)
    cmid.post_recv(incoming)
    outgoing.write(pattern(5)[:size], size)
    cmid.post_ud_send(outgoing, AH(cmid.pd, attr=peer.ah_attr), rqpn=peer.qp_num, length=size)
    cmid.get_send_comp()
    check(cmid.get_recv_comp().byte_len == size + GRH, "length of the answer")
    check(incoming.read(size, GRH) == pattern(5)[:size], "the answer")


def multicast(role: str, address: str) -> None:
    """`address` is the side's own. The client is a member, too, since joining tells it where to send."""
    events = Events(ce.RDMA_PS_UDP)
    cmid, size = events.cmid, 1000
    cmid.bind_addr(AddrInfo(src=address, port_space=ce.RDMA_PS_UDP, flags=ce.RAI_PASSIVE))
    cmid.resolve_addr(AddrInfo(src=address, dst=GROUP))
    events.expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
    cmid.create_qp(attributes(e.IBV_QPT_UD))
    cmid.join_multicast(addr=AddrInfo(src=GROUP))
    event = events.expect(ce.RDMA_CM_EVENT_MULTICAST_JOIN)
    group = UDParam(event)
    event.ack_cm_event()
    check(group.qp_num == MULTICAST_QPN, "the number that stands for all")
    if role == "server":
        region = cmid.reg_msgs(size + GRH)
        cmid.post_recv(region)
        print("listening", flush=True)
        check(cmid.get_recv_comp().byte_len == size + GRH, "length of a datagram")
        check(region.read(size, GRH) == pattern(6)[:size], "the datagram")
    else:
        region = cmid.reg_msgs(size)
        region.write(pattern(6)[:size], size)
        cmid.post_ud_send(region, AH(cmid.pd, attr=group.ah_attr), rqpn=group.qp_num, length=size)
        cmid.get_send_comp()
    cmid.leave_multicast(AddrInfo(src=GROUP))


def refused(code: int, call, *arguments, **named) -> None:
    try:
        call(*arguments, **named)
    except PyverbsRDMAError as error:
        check(error.error_code == code, f"{error}, where {errno.errorcode[code]} was due")
        return
    raise SystemExit(f"wrong: {call} was not refused")


def query_device(name: str) -> Context:
    check(name in [device.name.decode() for device in get_device_list()], "the list of devices")
    context = Context(name=name)
    device = context.query_device()
    check(device.max_qp > 0 and device.max_cqe > 0 and device.phys_port_cnt == 1, "the device's limits")
    port = context.query_port(1)
    check(port.state == e.IBV_PORT_ACTIVE and port.link_layer == e.IBV_LINK_LAYER_ETHERNET, "the port's state")
    refused(errno.EINVAL, context.query_port, 2)
    table = context.query_gid_table(port.gid_tbl_len)
    gids = [entry.gid_str() for entry in table]
    check(any(re.search("0a4d:0001$", gid) for gid in gids), f"the GID of 10.77.0.1 among {gids}")
    for entry in table:
        check(entry.gid_type == e.IBV_GID_TYPE_ROCE_V2, "the kind of a GID")
        check(str(context.query_gid(1, entry.gid_index)) == entry.gid_str(), "a GID by its index")
        check(context.query_gid_ex(1, entry.gid_index).gid_str() == entry.gid_str(), "an entry by its index")
    return context


def query_memory(pd: PD) -> None:
    region = MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
    region.write(b"kept", 4)
    key = region.rkey
    region.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
    check(region.read(4, 0) == b"kept" and region.rkey == key, "a region with new rights")
    region.close()
    refused(errno.EINVAL, MR, pd, SIZE, e.IBV_ACCESS_REMOTE_WRITE)


def query_queues(context: Context, pd: PD) -> None:
    channel = CompChannel(context)
    queue = CQ(context, 16, None, channel, 0)
    check(queue.cqe >= 16, "the length of a completion queue")
    queue.resize(64)
    check(queue.cqe >= 64, "the new length of a completion queue")
    shared = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=32, max_sge=2)))
    shared.modify(SrqAttr(srq_limit=4), e.IBV_SRQ_LIMIT)
    check(shared.query().srq_limit == 4, "the limit of a shared receive queue")
    for kind in (e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD):
        cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
        qp = QP(pd, QPInitAttr(qp_type=kind, scq=queue, rcq=queue, cap=cap))
        now, made = qp.query(e.IBV_QP_STATE | e.IBV_QP_CAP)
        check(now.qp_state == e.IBV_QPS_RESET and made.qp_type == kind, f"a new queue pair: {now.qp_state}, {made.qp_type}")
        check(now.cap.max_send_wr >= 8, "the capacity of a queue pair")
        qp.close()
    shared.close()


def queries(name: str) -> None:
    context = query_device(name)
    pd = PD(context)
    query_memory(pd)
    query_queues(context, pd)
    gid = context.query_gid(1, 0)
    AH(pd, attr=AHAttr(gr=GlobalRoute(dgid=gid, sgid_index=0), is_global=1, port_num=1)).close()
    refused(errno.EINVAL, AH, pd, attr=AHAttr(is_global=0, port_num=1))
    pd.close()
    context.close()


def main() -> None:
    if sys.argv[1] == "queries":
        queries(sys.argv[2])
    else:
        role, mode, address = sys.argv[1:]
        modes = {"connected": connected, "datagrams": datagrams, "rejected": rejected, "multicast": multicast}
        modes[mode](role, address)
    print("all as it should be")


if __name__ == "__main__":
    main()
