"""The rules of the protocol, each as a dialogue that is held with Linux and with UCM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dialogue import TCP, UDP, Dialogue


@dataclasses.dataclass(frozen=True)
class Row:
    chapter: str
    rule: str
    hold: Callable[[Dialogue], object]
    differs: str | None  # why UCM does something else on purpose
    core: bool
    slow: bool

    @property
    def name(self) -> str:
        return self.hold.__name__


ROWS: list[Row] = []


def row(chapter: str, rule: str, *, differs: str | None = None, core: bool = False, slow: bool = False):
    def add(hold):
        ROWS.append(Row(chapter, rule, hold, differs, core, slow))
        return hold

    return add


REFUSED = "Requests that are refused"


@row(REFUSED, "nobody listens on the port", core=True)
def no_listener(t: Dialogue):
    t.send("REQ")
    t.settle()


@row(REFUSED, "nobody listens on the port, over IPv6", core=True)
def no_listener_ipv6(t: Dialogue):
    t.version = 6
    t.send("REQ")
    t.settle()


@row(REFUSED, "nobody listens, and the REQ has a vendor ID (ECE)",
     differs="Linux copies bytes 4 to 7 of the REQ into the local comm ID; UCM has none to tell")
def no_listener_vendor(t: Dialogue):
    t.send("REQ", vendor_id=0x123456)
    t.settle()


@row(REFUSED, "the IP CM header asks for an address that nobody listens on")
def other_address(t: Dialogue):
    t.listen()
    t.send("REQ", cma={"destination": "10.77.0.3"})
    t.settle()


@row(REFUSED, "the listener is bound to an IPv6 address, the request comes over IPv4")
def other_family(t: Dialogue):
    t.listen(address="fd77::2")
    t.send("REQ")
    t.settle()


@row(REFUSED, "the listener is on ::, for IPv6 only")
def ipv6_only(t: Dialogue):
    with t.prepared():
        t.calls("id l", "option l 0 2 1 4", f"bind l :: {t.port}", "listen l 4")
    t.send("REQ")
    t.settle()


@row(REFUSED, "the listener is on :: for both families: no refusal")
def both_families(t: Dialogue):
    t.listen(address="::")
    t.send("REQ")
    t.call("event l b")
    t.call("addresses b")


@row(REFUSED, "the IP CM header is of version 1")
def header_version(t: Dialogue):
    t.listen()
    t.send("REQ", cma={"version": 0x10})
    t.settle()


@row(REFUSED, "the IP CM header is of a minor version")
def header_minor_version(t: Dialogue):
    t.listen()
    t.send("REQ", cma={"version": 0x01})
    t.settle()


@row(REFUSED, "the IP CM header is of IP version 5")
def ip_version(t: Dialogue):
    t.listen()
    t.send("REQ", cma={"ip_version": 5})
    t.settle()


@row(REFUSED, "reserved bits are set in the IP CM header: no refusal")
def header_reserved(t: Dialogue):
    t.listen()
    t.send("REQ", patch=[[24 + 140 + 1, "4f"]])
    t.call("event l b")


@row(REFUSED, "the REQ is for a UC connection")
def transport_uc(t: Dialogue):
    t.listen()
    t.send("REQ", transport_service=1)
    t.settle()


@row(REFUSED, "the REQ is for an RD connection")
def transport_rd(t: Dialogue):
    t.listen()
    t.send("REQ", transport_service=2)
    t.settle()


@row(REFUSED, "the REQ is for an XRC connection")
def transport_xrc(t: Dialogue):
    t.listen()
    t.send("REQ", transport_service=3, extended_transport_type=1)
    t.settle()


@row(REFUSED, "the REQ has the service ID of a datagram service that listens")
def req_for_datagrams(t: Dialogue):
    t.listen(datagrams=True)
    t.send("REQ", service_id=UDP << 16 | t.port)
    t.settle()


@row(REFUSED, "the SIDR_REQ has the service ID of a connected service that listens")
def sidr_for_connections(t: Dialogue):
    t.listen()
    t.send("SIDR_REQ", service_id=TCP << 16 | t.port)
    t.settle()


@row(REFUSED, "the IP CM header asks for an address of another interface of the host",
     differs="UCM's device is the host: each of its addresses will do, by whichever interface")
def other_interface(t: Dialogue):
    t.listen(address="0.0.0.0")
    t.send("REQ", cma={"destination": "10.77.1.2"})
    t.settle()
    t.call("silence l 50")


@row(REFUSED, "the IP CM header asks for a loopback address")
def loopback_destination(t: Dialogue):
    t.listen(address="0.0.0.0")
    t.send("REQ", cma={"destination": "127.0.0.1"})
    t.settle()


@row(REFUSED, "the IP CM header names a source without a route to it",
     differs="UCM answers to where the packet came from, and needs no route to what the header says")
def source_without_route(t: Dialogue):
    t.listen(address="0.0.0.0")
    t.send("REQ", cma={"source": "10.99.0.1"})
    t.settle()
    t.call("silence l 50")


@row(REFUSED, "the IP CM header names a multicast source")
def multicast_source(t: Dialogue):
    t.listen(address="0.0.0.0")
    t.send("REQ", cma={"source": "224.0.0.5"})
    t.settle()


@row(REFUSED, "the primary remote GID is none of the host", core=True,
     differs="Linux tells the first GID of its table; UCM the one that the packet came to, which can be used")
def foreign_gid(t: Dialogue):
    t.listen()
    t.send("REQ", primary__remote_gid="10.77.0.3")
    t.settle()


@row(REFUSED, "the P_Key in the REQ is unknown",
     differs="Linux tells the first GID of its table; UCM the one that the packet came to, which can be used")
def unknown_pkey(t: Dialogue):
    t.listen()
    t.send("REQ", pkey=0x1234)
    t.settle()


@row(REFUSED, "the P_Key in the REQ is a limited member's: no refusal")
def limited_pkey(t: Dialogue):
    t.listen()
    t.send("REQ", pkey=0x7FFF)
    t.settle()


@row(REFUSED, "the REQ has an alternate path")
def alternate_path(t: Dialogue):
    t.listen()
    t.send("REQ", alternate__local_lid=0xFFFF, alternate__remote_lid=0xFFFF, alternate__local_gid=t.peer,
           alternate__remote_gid=t.address, alternate__hop_limit=64)
    t.settle()


@row(REFUSED, "GUID and QPN belong to a connection that is established: that one is ended, and the REQ refused", core=True)
def stale_established(t: Dialogue):
    sent = t.established()
    t.send("REQ", local_qpn=sent["local_qpn"])
    t.settle()
    t.call("silence l 50")


@row(REFUSED, "GUID and QPN belong to a connection that is being made")
def stale_requested(t: Dialogue):
    sent = t.requested()
    t.send("REQ", local_qpn=sent["local_qpn"])
    t.settle()
    t.call("silence l 50")


@row(REFUSED, "GUID and QPN belong to a connection whose REP is not answered yet")
def stale_accepted(t: Dialogue):
    sent = t.accepted()
    t.send("REQ", local_qpn=sent["local_qpn"])
    t.settle()
    t.call("silence l 50")


@row(REFUSED, "the backlog is full: the REQ is dropped, and a repetition taken once there is room", core=True)
def full_backlog(t: Dialogue):
    t.listen(backlog=1)
    t.send("REQ")
    second = t.send("REQ")
    t.settle()
    t.call("event l b")
    t.again(second, "REQ")
    t.call("event l c")


@row(REFUSED, "a datagram service's backlog is full")
def full_backlog_datagrams(t: Dialogue):
    t.listen(backlog=1, datagrams=True)
    t.send("SIDR_REQ")
    t.send("SIDR_REQ")
    t.settle()


@row(REFUSED, "the listener's program refuses with private data", core=True)
def rejected(t: Dialogue):
    t.requested()
    t.call("reject b 3")
    t.receive()


@row(REFUSED, "the program refuses without private data, and once more")
def rejected_twice(t: Dialogue):
    t.requested()
    t.call("reject b 0")
    t.receive()
    t.call("reject b 0")
    t.settle()


@row(REFUSED, "the program destroys the request")
def request_destroyed(t: Dialogue):
    t.requested()
    t.call("destroy b")
    t.receive()


@row(REFUSED, "the listener is destroyed before its program has read the request")
def listener_destroyed(t: Dialogue):
    t.listen()
    t.send("REQ")
    t.settle()
    t.call("destroy l")
    t.receive()


@row(REFUSED, "the program accepts with more private data than fits")
def accept_too_much(t: Dialogue):
    t.requested()
    t.calls("qp b", "accept b data=197")
    t.settle()
    t.call("accept b")


@row(REFUSED, "the accepted connection is destroyed before RTU", core=True)
def accepted_destroyed(t: Dialogue):
    t.accepted()
    t.call("destroy b")
    t.receive()


@row(REFUSED, "the primary local GID is not the packet's source: no refusal, and the answer goes to the packet's source")
def other_local_gid(t: Dialogue):
    t.listen()
    t.send("REQ", primary__local_gid="10.77.0.19")
    t.settle()
    t.call("event l b")


@row(REFUSED, "the IP CM header names another source than the packet's: no refusal")
def other_source(t: Dialogue):
    t.listen()
    t.send("REQ", cma={"source": "10.77.0.19"})
    t.settle()
    t.call("event l b")
    t.call("addresses b")


@row(REFUSED, "LIDs and hop limit of the path are 0: no refusal")
def no_lids(t: Dialogue):
    t.listen()
    t.send("REQ", primary__local_lid=0, primary__remote_lid=0, primary__hop_limit=0)
    t.settle()
    t.call("event l b")


@row(REFUSED, "the path MTU is larger than the interface's: no refusal")
def large_mtu(t: Dialogue):
    t.listen()
    t.send("REQ", path_mtu=5)
    t.settle()
    t.call("event l b")


@row(REFUSED, "the path MTU is none",
     differs="Linux' device would refuse the QP's transition later; UCM says at once what is wrong")
def no_mtu(t: Dialogue):
    t.listen()
    t.send("REQ", path_mtu=0)
    t.settle()
    t.call("silence l 50")


@row(REFUSED, "the ACK timeout is 0: no refusal")
def no_ack_timeout(t: Dialogue):
    t.requested(primary__local_ack_timeout=0)
    t.call("attributes b RTS")


@row(REFUSED, "nobody listens for datagrams on the port", core=True)
def no_datagram_listener(t: Dialogue):
    t.send("SIDR_REQ")
    t.settle()


@row(REFUSED, "the IP CM header of a SIDR_REQ is of version 1")
def sidr_header_version(t: Dialogue):
    t.listen(datagrams=True)
    t.send("SIDR_REQ", cma={"version": 0x10})
    t.settle()


@row(REFUSED, "the P_Key of a SIDR_REQ is unknown")
def sidr_pkey(t: Dialogue):
    t.listen(datagrams=True)
    t.send("SIDR_REQ", pkey=0x1234)
    t.settle()
    t.call("silence l 50")


@row(REFUSED, "the datagram service's program refuses with private data", core=True)
def sidr_rejected(t: Dialogue):
    t.listen(datagrams=True)
    t.send("SIDR_REQ")
    t.call("event l b")
    t.call("reject b 3")
    t.receive()


@row(REFUSED, "the datagram service's program destroys the request")
def sidr_destroyed(t: Dialogue):
    t.listen(datagrams=True)
    t.send("SIDR_REQ")
    t.call("event l b")
    t.call("destroy b")
    t.receive()


@row(REFUSED, "the datagram service's program accepts", core=True)
def sidr_accepted(t: Dialogue):
    t.listen(datagrams=True)
    t.send("SIDR_REQ", private_data="aabbcc")
    t.call("event l b")
    t.calls("qp b", "accept b data=5")
    t.receive()
    t.call("silence l 50")


UNHEARD = "Packets that are dropped"


def unheard(name: str, rule: str, **changes):
    """A REQ that would be answered, were it not for the changes."""

    def hold(t: Dialogue):
        t.send("REQ", **changes)
        t.settle()

    hold.__name__ = name
    row(UNHEARD, rule)(hold)


unheard("bad_icrc", "a wrong ICRC", icrc=1)
unheard("packet_pkey", "a P_Key in the BTH that is not in the table", bth={"pkey": 0x1234})
unheard("packet_limited_pkey", "the P_Key of a limited member in the BTH: answered", bth={"pkey": 0x7FFF})
unheard("packet_qkey", "another Q_Key", deth={"qkey": 0x11111111})
unheard("packet_source_qp", "another source QP in the DETH: answered", deth={"source_qpn": 0x77})
unheard("packet_destination_qp", "another destination QP", bth={"destination_qpn": 0xFF0001})
unheard("packet_flags", "solicited event and migration bit in the BTH: answered", bth={"solicited_event": 1, "mig_req": 1})
unheard("base_version", "another base version of the MAD", mad={"base_version": 2})
unheard("management_class", "another management class", mad={"management_class": 0x81})
unheard("class_version", "another class version: no REJ 31", mad={"class_version": 1})
unheard("method", "another method", mad={"method": 0x02})
unheard("unknown_attribute", "an attribute that is none", mad={"attribute": 0x0042})
unheard("mad_status", "a status in the MAD header: answered", mad={"status": 0x1C, "class_specific": 7})


@row(UNHEARD, "REP, RTU, MRA, REJ and DREP of a connection that there is not; only DREQ is answered", core=True)
def unknown_connection(t: Dialogue):
    t.ours = t.new_id()
    t.theirs = t.new_id()
    for kind in ("REP", "RTU", "MRA", "REJ", "DREP"):
        t.send(kind, local_comm_id=t.ours)
    t.settle()
    t.send("DREQ", remote_qpn=0x11)
    t.settle()


@row(UNHEARD, "a SIDR_REP to a request that there is not")
def unknown_sidr(t: Dialogue):
    t.theirs = t.new_id()
    t.send("SIDR_REP")
    t.settle()


@row(UNHEARD, "LAP and APR of an established connection")
def lap(t: Dialogue):
    t.established()
    t.send("LAP", remote_qpn=t.their_qpn)
    t.send("APR")
    t.settle()
    t.call("silence l 50")
