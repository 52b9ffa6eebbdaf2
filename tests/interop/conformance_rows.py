"""The rules of the protocol, each as a dialogue that is held with Linux and with UCM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dialogue import STRANGER, TCP, UDP, Dialogue, peer_address


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
    t.again(second)
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


@row(REFUSED, "the program refuses the request's ECE")
def rejected_ece(t: Dialogue):
    t.requested(vendor_id=0x123456, mad={"attribute_modifier": 0x77})
    t.call("reject_ece b 3")
    t.receive()


@row(REFUSED, "the request has ECE, the program accepts without")
def accepted_without_ece(t: Dialogue):
    t.requested(vendor_id=0x123456, mad={"attribute_modifier": 0x77})
    t.calls("qp b", "accept b")
    t.receive()


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
    t.send("REQ", primary__local_gid="10.77.0.7")
    t.settle()
    t.call("event l b")


@row(REFUSED, "the IP CM header names another source than the packet's: no refusal")
def other_source(t: Dialogue):
    t.listen()
    t.send("REQ", cma={"source": "10.77.0.7"})
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


unheard("class_port_info", "Get(ClassPortInfo): answered, it is not supported", mad={"method": 1, "attribute": 1})


@row(UNHEARD, "a MAD that is too short",
     differs="the machine's rxe takes what is missing from the buffer's last use; a MAD has 256 bytes")
def short_mad(t: Dialogue):
    t.send("REQ", size=252)
    t.settle()


@row(UNHEARD, "RTU and DREQ of a connection, right but for the sender's address",
     differs="UCM hears of a connection only from the host that it is with")
def stranger(t: Dialogue):
    t.accepted()
    t.send("RTU", source=peer_address(STRANGER, 4))
    t.settle()
    t.call("silence l 50")
    t.send("DREQ", source=peer_address(STRANGER, 4))
    t.settle()
    t.call("silence l 50")


@row(UNHEARD, "REP to the side that was asked, RTU to the side that has asked")
def wrong_role(t: Dialogue):
    t.accepted()
    t.send("REP", local_comm_id=t.ours)
    t.settle()
    t.call("silence l 50")
    t.connected()
    t.send("RTU")
    t.settle()
    t.call("silence a 50")


@row(UNHEARD, "MRA of an established connection")
def late_mra(t: Dialogue):
    t.established()
    t.send("MRA", message=1, service_timeout=20)
    t.send("MRA", message=0, service_timeout=20)
    t.settle()
    t.call("silence l 50")


@row(UNHEARD, "REP, RTU, MRA, REJ and DREP of a connection that there is not; DREQ is answered", core=True,
     differs="Linux lets the peer repeat its REP for a minute; UCM says that nobody has asked for it")
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


ASKED = "The side that asks"


@row(ASKED, "connect without a QP: the program is told of the answer, and establishes", core=True)
def connect_without_qp(t: Dialogue):
    t.resolved(qp="ownqp")
    t.call("connect a rr=3 depth=5 retry=4 rnr=2 flow=1 data=56")
    t.receive()
    t.send("REP", private_data="0102")
    t.call("event a")
    t.settle()
    t.call("establish a")
    t.receive()


@row(ASKED, "connect with a QP", core=True)
def connect_with_qp(t: Dialogue):
    t.resolved()
    t.calls("connect a", "state a")
    t.receive()
    t.send("REP")
    t.calls("event a", "query a")
    t.receive()


@row(ASKED, "connect with a QP, over IPv6")
def connect_ipv6(t: Dialogue):
    t.version = 6
    t.resolved()
    t.calls("addresses a", "connect a")
    t.receive()
    t.send("REP")
    t.calls("event a", "query a")
    t.receive()


@row(ASKED, "connect without parameters")
def connect_null(t: Dialogue):
    t.resolved()
    t.call("connect a null")
    t.receive()


@row(ASKED, "connect without a QP, and with QP number 0",
     differs="every QP number in use belongs to a program, and UCM looks whether it is this one's")
def connect_qpn_zero(t: Dialogue):
    with t.prepared():
        t.calls("id a", f"resolved a {t.peer} {t.port}")
    t.call("connect a")
    t.settle()


@row(ASKED, "retry counts above 7 become 7")
def retry_counts(t: Dialogue):
    t.resolved()
    t.call("connect a retry=200 rnr=9")
    t.receive()


@row(ASKED, "type of service")
def type_of_service(t: Dialogue):
    with t.prepared():
        t.calls("id a", "option a 0 0 40 1", f"resolved a {t.peer} {t.port}", "qp a")
    t.call("connect a")
    t.receive()
    t.send("REP")
    t.calls("event a", "query a")
    t.receive()


@row(ASKED, "ACK timeout set before the route is resolved")
def ack_timeout(t: Dialogue):
    with t.prepared():
        t.calls("id a", "option a 0 3 14 1", f"resolved a {t.peer} {t.port}", "qp a")
    t.call("connect a")
    t.receive()
    t.send("REP")
    t.calls("event a", "query a")
    t.receive()


@row(ASKED, "two connections: comm IDs, QPNs and PSNs are not the same")
def two_connections(t: Dialogue):
    for name in "ac":
        t.calls(f"id {name}", f"resolved {name} {t.peer} {t.port}", f"qp {name}", f"connect {name}")
        t.receive()


@row(ASKED, "the REP's GUID and QPN belong to an established connection: that one is ended, and the REP refused")
def rep_stale(t: Dialogue):
    sent = t.connected()
    t.requesting("c")
    t.send("REP", local_qpn=sent["local_qpn"])
    t.settle()
    t.calls("silence a 50", "silence c 50")


@row(ASKED, "the REP's GUID and comm ID belong to an established connection")
def rep_same_id(t: Dialogue):
    sent = t.connected()
    t.requesting("c")
    t.send("REP", local_comm_id=sent["local_comm_id"])
    t.settle()
    t.calls("silence a 50", "silence c 50")


@row(ASKED, "destroyed before it is answered: the REQ is withdrawn", core=True)
def withdrawn(t: Dialogue):
    t.requesting()
    t.call("destroy a")
    t.receive()


@row(ASKED, "destroyed after MRA")
def withdrawn_after_mra(t: Dialogue):
    t.requesting()
    t.send("MRA", local_comm_id=t.new_id(), service_timeout=20)
    t.settle()
    t.call("destroy a")
    t.receive()


@row(ASKED, "destroyed after REP, before it is established")
def destroyed_after_rep(t: Dialogue):
    t.answered()
    t.call("destroy a")
    t.receive()


@row(ASKED, "the QP cannot be brought up with what the REP says: CONNECT_ERROR")
def connect_error(t: Dialogue):
    t.requesting()
    t.send("REP", responder_resources=255, initiator_depth=255)
    t.calls("event a", "state a")
    t.settle()
    t.call("destroy a")
    t.receive()


@row(ASKED, "the REP has another vendor's ECE: CONNECT_ERROR")
def foreign_ece(t: Dialogue):
    t.requesting()
    t.send("REP", vendor_id=0x123456)
    t.calls("event a", "state a")
    t.settle()


def refused_with(reason: int, **changes):
    def hold(t: Dialogue):
        t.requesting()
        t.send("REJ", reason=reason, private_data="0102", **{"local_comm_id": t.new_id()} | changes)
        t.calls("event a", "state a", f"resolve a {t.peer} {t.port}", "connect a", "disconnect a")
        t.settle()
        t.call("silence a 50")

    return hold


for number, text in ((1, "no QP"), (8, "invalid service ID"), (10, "stale connection"), (24, "redirect"), (28, "consumer defined"),
                     (99, "none that there is")):
    case = refused_with(number)
    case.__name__ = f"refused_{number}"
    row(ASKED, f"REJ with reason {number}, {text}; the ID can only be destroyed", core=number == 28)(case)


@row(ASKED, "REJ without a local comm ID")
def refused_without_id(t: Dialogue):
    t.requesting()
    t.send("REJ", reason=8, local_comm_id=0)
    t.call("event a")


@row(ASKED, "REJ after MRA")
def refused_after_mra(t: Dialogue):
    t.requesting()
    theirs = t.new_id()
    t.send("MRA", local_comm_id=theirs, service_timeout=20)
    t.send("REJ", reason=28, local_comm_id=theirs)
    t.call("event a")


@row(ASKED, "REP after MRA with the same comm ID")
def rep_after_mra(t: Dialogue):
    t.requesting()
    theirs = t.new_id()
    t.send("MRA", local_comm_id=theirs, service_timeout=20)
    t.send("REP", local_comm_id=theirs)
    t.call("event a")
    t.receive()


@row(ASKED, "REJ after REP")
def refused_after_rep(t: Dialogue):
    t.answered()
    t.send("REJ", message=2, reason=28)
    t.call("event a")
    t.call("establish a")
    t.settle()


@row(ASKED, "REJ of the REQ after REP, without the comm ID")
def late_refusal(t: Dialogue):
    t.answered()
    t.send("REJ", message=0, reason=28, local_comm_id=0)
    t.settle()
    t.call("silence a 50")


@row(ASKED, "REP with another remote comm ID",
     differs="Linux lets the peer repeat its REP for a minute; UCM says that nobody has asked for it")
def rep_wrong_id(t: Dialogue):
    t.requesting()
    t.send("REP", remote_comm_id=t.new_id())
    t.settle()
    t.call("silence a 50")


@row(ASKED, "REP with another transaction ID: taken")
def rep_other_transaction(t: Dialogue):
    t.requesting()
    t.send("REP", mad={"transaction_id": 0x1234567})
    t.call("event a")
    t.receive()


@row(ASKED, "DREQ before the program establishes",
     differs="Linux drops it; for UCM the connection is over")
def dreq_before_rtu(t: Dialogue):
    t.answered()
    t.send("DREQ")
    t.settle()
    t.call("silence a 50")


@row(ASKED, "a datagram service answers", core=True)
def sidr_answer(t: Dialogue):
    with t.prepared():
        t.calls("id a udp", f"resolved a {t.peer} {t.port}", "qp a")
    t.call("connect a data=180")
    t.receive()
    t.send("SIDR_REP", private_data="0102")
    t.call("event a")
    t.call("disconnect a")
    t.settle()


def sidr_refused(name: str, rule: str, **changes):
    def hold(t: Dialogue):
        t.datagrams_requested()
        t.send("SIDR_REP", private_data="0102", **changes)
        t.call("event a")
        t.settle()

    hold.__name__ = name
    row(ASKED, rule)(hold)


sidr_refused("sidr_status_1", "SIDR_REP with status 1", status=1)
sidr_refused("sidr_status_2", "SIDR_REP with status 2", status=2)
sidr_refused("sidr_status_200", "SIDR_REP with a status that is none", status=200)
sidr_refused("sidr_no_qkey", "SIDR_REP without Q_Key", qkey=0)
sidr_refused("sidr_other_qkey", "SIDR_REP with another Q_Key", qkey=0x7654321)


@row(ASKED, "a datagram request is destroyed before it is answered")
def sidr_withdrawn(t: Dialogue):
    t.datagrams_requested()
    t.call("destroy a")
    t.send("SIDR_REP")
    t.settle()


AGAIN = "What comes again"


@row(AGAIN, "REQ, before the program has read it: MRA", core=True)
def req_again_unread(t: Dialogue):
    t.listen()
    sent = t.send("REQ")
    t.settle()
    t.again(sent)
    t.settle()


@row(AGAIN, "REQ, before the program has answered: MRA, each time", core=True)
def req_again_unanswered(t: Dialogue):
    sent = t.requested()
    t.again(sent)
    t.settle()
    t.again(sent)
    t.settle()
    t.call("silence l 50")


@row(AGAIN, "REQ, after REP",
     differs="Linux waits until its REP is due again; UCM repeats it at once")
def req_again_accepted(t: Dialogue):
    sent = t.accepted()
    t.again(sent)
    t.settle(repeated=True)


@row(AGAIN, "REQ, after RTU")
def req_again_established(t: Dialogue):
    sent = t.established()
    t.again(sent)
    t.settle()


@row(AGAIN, "REQ, after the program has disconnected: dropped")
def req_again_disconnecting(t: Dialogue):
    sent = t.established()
    with t.prepared():
        t.call("disconnect b")
        t.receive()
    t.again(sent)
    t.settle()
    t.call("silence l 50")


@row(AGAIN, "REQ, after the program has refused it: a new request")
def req_again_refused(t: Dialogue):
    sent = t.requested()
    with t.prepared():
        t.call("reject b 0")
        t.receive()
    t.again(sent)
    t.call("event l c")


@row(AGAIN, "REQ, after the connection is over: a new request")
def req_again_over(t: Dialogue):
    sent = t.established(primary__local_ack_timeout=20)
    with t.prepared():
        t.send("DREQ")
        t.calls("event l", "disconnect b")
        t.receive()
    t.again(sent)
    t.call("event l c")


@row(AGAIN, "REP, before the program has read it")
def rep_again_unread(t: Dialogue):
    t.requesting()
    sent = t.send("REP")
    t.settle()
    t.again(sent)
    t.settle()


@row(AGAIN, "REP, before the program establishes: MRA")
def rep_again_unanswered(t: Dialogue):
    sent = t.answered()
    t.again(sent)
    t.settle()


@row(AGAIN, "REP, after RTU: RTU again", core=True)
def rep_again_established(t: Dialogue):
    sent = t.connected()
    t.again(sent)
    t.receive()


@row(AGAIN, "REP, after DREQ",
     differs="Linux drops it; UCM repeats its DREQ, which the peer has to see before anything else")
def rep_again_disconnecting(t: Dialogue):
    sent = t.connected()
    with t.prepared():
        t.call("disconnect a")
        t.receive()
    t.again(sent)
    t.settle(repeated=True)


@row(AGAIN, "RTU, after RTU: dropped")
def rtu_again(t: Dialogue):
    t.established()
    t.send("RTU")
    t.settle()
    t.call("silence l 50")


@row(AGAIN, "DREQ, before the program has answered: dropped")
def dreq_again_unanswered(t: Dialogue):
    t.established()
    t.send("DREQ")
    t.settle()
    t.call("event l")
    t.send("DREQ")
    t.settle()
    t.call("silence l 50")


@row(AGAIN, "DREQ, in timewait: DREP again", core=True)
def dreq_again_timewait(t: Dialogue):
    t.established(primary__local_ack_timeout=20)
    sent = t.send("DREQ")
    t.calls("event l", "disconnect b")
    t.receive()
    t.again(sent)
    t.receive()
    t.call("silence l 50")


@row(AGAIN, "DREQ, after timewait, the ID not destroyed",
     differs="Linux drops it, and the peer's disconnection then takes its whole timeout; UCM answers")
def dreq_again_idle(t: Dialogue):
    t.established()
    t.send("DREQ")
    t.calls("event l", "disconnect b")
    t.receive()
    t.call("event l")
    t.send("DREQ")
    t.settle()


@row(AGAIN, "DREQ, after timewait, the ID destroyed")
def dreq_again_destroyed(t: Dialogue):
    t.established()
    t.send("DREQ")
    t.calls("event l", "disconnect b")
    t.receive()
    t.calls("event l", "destroy b")
    t.send("DREQ")
    t.settle()


@row(AGAIN, "DREQ with another QPN: dropped")
def dreq_other_qpn(t: Dialogue):
    t.established()
    t.send("DREQ", remote_qpn=0x2FFFF)
    t.settle()
    t.call("silence l 50")


@row(AGAIN, "SIDR_REQ, before it is answered: dropped")
def sidr_again_unanswered(t: Dialogue):
    t.listen(datagrams=True)
    sent = t.send("SIDR_REQ")
    t.call("event l b")
    t.again(sent)
    t.settle()
    t.call("silence l 50")


@row(AGAIN, "SIDR_REQ, after it is answered",
     differs="for Linux it is a new request, which the program has to answer again; UCM gives the same answer once more")
def sidr_again_answered(t: Dialogue):
    t.listen(datagrams=True)
    sent = t.send("SIDR_REQ")
    with t.prepared():
        t.calls("event l b", "qp b", "accept b")
        t.receive()
    t.again(sent)
    t.settle()
    t.call("silence l 50")


@row(AGAIN, "SIDR_REP: dropped")
def sidr_rep_again(t: Dialogue):
    t.datagrams_requested()
    with t.prepared():
        t.send("SIDR_REP")
        t.call("event a")
    t.send("SIDR_REP", status=2)
    t.settle()
    t.call("silence a 50")


PASSIVE = "The side that is asked"


@row(PASSIVE, "accept, RTU, and the QP that comes of it", core=True)
def accept(t: Dialogue):
    t.requested(private_data="0102")
    t.calls("addresses b", "qp b", "accept b rr=2 depth=8 rnr=4 flow=1 data=196")
    t.receive()
    t.call("query b")
    t.send("RTU")
    t.call("event l")
    t.settle()


@row(PASSIVE, "accept over IPv6")
def accept_ipv6(t: Dialogue):
    t.version = 6
    t.requested()
    t.calls("addresses b", "qp b", "accept b")
    t.receive()
    t.call("query b")
    t.send("RTU")
    t.call("event l")


@row(PASSIVE, "accept without parameters")
def accept_null(t: Dialogue):
    t.requested()
    t.calls("qp b", "accept b null")
    t.receive()
    t.call("query b")


@row(PASSIVE, "accept without parameters, the request wants more than the device has")
def accept_null_much(t: Dialogue):
    t.requested(responder_resources=200, initiator_depth=250)
    t.calls("qp b", "accept b null")
    t.receive()
    t.call("query b")


@row(PASSIVE, "accept with more than the device has")
def accept_much(t: Dialogue):
    t.requested()
    t.calls("qp b", "accept b rr=200")
    t.settle()


@row(PASSIVE, "accept with 255: what the request wants")
def accept_as_asked(t: Dialogue):
    t.requested()
    t.calls("qp b", "accept b rr=255 depth=255")
    t.receive()


@row(PASSIVE, "accept with a QP that the library does not know")
def accept_own_qp(t: Dialogue):
    t.requested()
    t.calls("ownqp b", "accept b")
    t.receive()
    t.send("RTU")
    t.call("event l")


@row(PASSIVE, "the request's service level, traffic class, flow label, SRQ and flow control")
def request_values(t: Dialogue):
    t.requested(primary__traffic_class=40, primary__sl=3, primary__flow_label=0xABCDE, primary__hop_limit=9, srq=1,
                end_to_end_flow_control=1, retry_count=3, rnr_retry_count=1, path_mtu=2, primary__packet_rate=3)
    t.calls("qp b", "accept b")
    t.receive()
    t.call("query b")


@row(PASSIVE, "accept again")
def accept_twice(t: Dialogue):
    t.accepted()
    t.call("accept b")
    t.call("reject b 0")
    t.settle()


@row(PASSIVE, "RTU with other comm IDs: dropped")
def rtu_wrong_id(t: Dialogue):
    t.accepted()
    ours = t.ours
    t.send("RTU", local_comm_id=t.new_id())
    t.send("RTU", local_comm_id=ours, remote_comm_id=t.new_id())
    t.settle()
    t.call("silence l 50")


@row(PASSIVE, "RTU before the program has answered: dropped")
def rtu_early(t: Dialogue):
    t.requested()
    t.send("RTU", remote_comm_id=t.new_id())
    t.settle()
    t.calls("silence l 50", "qp b", "accept b")
    t.receive()


@row(PASSIVE, "the program tells of the first data: established, RTU no longer matters")
def notify(t: Dialogue):
    t.accepted()
    t.calls("notify b 4", "event l", "notify b 4")
    t.send("RTU")
    t.settle()
    t.call("silence l 50")


@row(PASSIVE, "the program tells of data too early, and of other things")
def notify_early(t: Dialogue):
    t.requested()
    t.calls("notify b 4", "notify b 5", "notify b 7")


@row(PASSIVE, "RTU after MRA")
def rtu_after_mra(t: Dialogue):
    t.accepted()
    t.send("MRA", message=1, service_timeout=20)
    t.send("RTU")
    t.call("event l")


@row(PASSIVE, "MRA gives the peer more time than the REPs' timeout")
def rep_mra(t: Dialogue):
    t.requested(local_cm_response_timeout=18, max_cm_retries=3)
    t.calls("qp b", "accept b")
    t.receive()
    t.send("MRA", message=1, service_timeout=22)
    t.settle()
    t.pause(6)
    t.send("RTU")
    t.call("event l")


@row(PASSIVE, "nobody answers the REP", core=True)
def rep_unanswered(t: Dialogue):
    t.requested(local_cm_response_timeout=14, max_cm_retries=2)
    t.calls("qp b", "accept b")
    t.receive()
    t.calls("event l", "state b")
    t.send("RTU")
    t.call("disconnect b")
    t.settle()
    t.call("silence l 50")


@row(PASSIVE, "the REQ wants no repetition of the REP")
def rep_no_retries(t: Dialogue):
    t.requested(local_cm_response_timeout=14, max_cm_retries=0)
    t.calls("qp b", "accept b")
    t.receive()
    t.call("event l")


@row(PASSIVE, "DREQ before RTU: disconnected, never established", core=True)
def dreq_before_rtu_passive(t: Dialogue):
    t.accepted()
    t.send("DREQ")
    t.calls("event l", "disconnect b")
    t.receive()


@row(PASSIVE, "REJ(REP) after REP")
def rep_refused(t: Dialogue):
    t.accepted()
    t.send("REJ", message=1, reason=28, private_data="0102")
    t.calls("event l", "state b", "disconnect b")
    t.settle()
    t.call("silence l 50")


@row(PASSIVE, "REJ(REP) with reason 10 after REP")
def rep_stale_refused(t: Dialogue):
    t.accepted()
    t.send("REJ", message=1, reason=10)
    t.calls("event l", "state b", "disconnect b")
    t.settle()
    t.call("silence l 3000")


@row(PASSIVE, "the peer withdraws its REQ (REJ 4) before the program has answered: no event, accept fails",
     differs="UCM makes a QP without asking the daemon; that the request is gone, accept tells")
def request_withdrawn(t: Dialogue):
    sent = t.requested()
    t.send("REJ", message=2, reason=4, remote_comm_id=0, ari_length=8, ari=f"{sent['local_ca_guid']:016x}")
    t.settle()
    t.calls("silence l 50", "qp b", "accept b")
    t.settle()


@row(PASSIVE, "the peer withdraws its REQ before the program has read it: the event comes all the same")
def request_withdrawn_unread(t: Dialogue):
    t.listen()
    sent = t.send("REQ")
    t.settle()
    t.send("REJ", message=2, reason=4, remote_comm_id=0, ari_length=8, ari=f"{sent['local_ca_guid']:016x}")
    t.settle()
    t.call("silence l 50")


@row(PASSIVE, "the peer withdraws its REQ after REP")
def request_withdrawn_accepted(t: Dialogue):
    sent = t.accepted()
    t.send("REJ", message=2, reason=4, remote_comm_id=0, ari_length=8, ari=f"{sent['local_ca_guid']:016x}")
    t.settle()
    t.call("silence l 50")


@row(PASSIVE, "REJ 4 with another GUID: dropped")
def withdrawal_of_other(t: Dialogue):
    t.accepted()
    t.send("REJ", message=2, reason=4, remote_comm_id=0, ari_length=8, ari="0200000000abcdef")
    t.send("RTU", remote_comm_id=t.theirs)
    t.call("event l")


@row(PASSIVE, "REJ of a request that was answered with MRA: no event, accept fails",
     differs="UCM makes a QP without asking the daemon; accept tells")
def refused_after_mra_passive(t: Dialogue):
    sent = t.requested()
    t.again(sent)
    t.receive()
    t.send("REJ", message=2, reason=28)
    t.settle()
    t.calls("silence l 50", "qp b", "accept b")


@row(PASSIVE, "DREQ of a request that was answered with MRA: dropped")
def dreq_after_mra(t: Dialogue):
    sent = t.requested()
    t.again(sent)
    t.receive()
    t.send("DREQ", remote_qpn=0)
    t.settle()
    t.call("silence l 50")


@row(PASSIVE, "two peers' requests with equal comm IDs and different GUIDs are two")
def equal_comm_ids(t: Dialogue):
    sent = t.requested()
    t.send("REQ", local_comm_id=sent["local_comm_id"], local_ca_guid=sent["local_ca_guid"] + 0x10000)
    t.call("event l c")


@row(PASSIVE, "a QPN comes again right after DREP: a new request")
def qpn_again(t: Dialogue):
    sent = t.established(primary__local_ack_timeout=20)
    with t.prepared():
        t.send("DREQ")
        t.calls("event l", "disconnect b")
        t.receive()
    t.send("REQ", local_qpn=sent["local_qpn"])
    t.call("event l c")


OVER = "The end of a connection"


@row(OVER, "the program disconnects, the peer answers, timewait ends", core=True)
def disconnect(t: Dialogue):
    t.established()
    t.calls("disconnect b", "state b")
    t.receive()
    t.send("DREP")
    t.calls("event l", "event l")
    t.call("destroy b")
    t.settle()


@row(OVER, "the active side disconnects, the peer answers, timewait ends")
def disconnect_active(t: Dialogue):
    t.connected()
    t.calls("disconnect a", "state a")
    t.receive()
    t.send("DREP")
    t.calls("event a", "event a", "disconnect a", "destroy a")
    t.settle()


@row(OVER, "the peer disconnects the active side", core=True)
def disconnected(t: Dialogue):
    t.connected()
    t.send("DREQ")
    t.settle()
    t.calls("event a", "state a", "disconnect a", "state a")
    t.receive()
    t.call("event a")


@row(OVER, "the peer disconnects, the program destroys instead of disconnecting")
def disconnected_destroyed(t: Dialogue):
    t.established()
    t.send("DREQ")
    t.call("event l")
    t.call("destroy b")
    t.receive()


@row(OVER, "DREP without a DREQ: dropped")
def drep_unasked(t: Dialogue):
    t.established()
    t.send("DREP")
    t.settle()
    t.call("silence l 50")


@row(OVER, "crossing DREQs",
     differs="Linux waits until the program disconnects once more, and the peer with it; UCM answers at once")
def crossing(t: Dialogue):
    t.established()
    t.call("disconnect b")
    t.receive()
    t.send("DREQ")
    t.settle()
    t.calls("event l", "disconnect b")
    t.settle()


@row(OVER, "DREP of the own DREQ after the peer's DREQ has crossed it",
     differs="the DREQ has been answered already")
def crossing_answered(t: Dialogue):
    t.established()
    with t.prepared():
        t.call("disconnect b")
        t.receive()
    t.send("DREQ")
    t.send("DREP")
    t.settle()
    t.calls("event l", "event l")


@row(OVER, "DREP after the peer's own DREQ")
def drep_after_dreq(t: Dialogue):
    t.established()
    t.send("DREQ")
    t.call("event l")
    t.send("DREP")
    t.settle()
    t.call("disconnect b")
    t.settle()


@row(OVER, "REJ after the peer's own DREQ")
def refused_after_dreq(t: Dialogue):
    t.established()
    t.send("DREQ")
    t.call("event l")
    t.send("REJ", message=2, reason=28)
    t.settle()
    t.call("disconnect b")
    t.settle()


@row(OVER, "DREQ before the REQ is answered")
def dreq_before_rep(t: Dialogue):
    t.requesting()
    t.send("DREQ", local_comm_id=t.new_id(), remote_qpn=0)
    t.settle()
    t.call("silence a 50")


@row(OVER, "the peer's MAC address changes while it is connected",
     differs="UCM's packets follow the host's neighbour table, and the connection goes on")
def neighbour_changes(t: Dialogue):
    t.connected()
    t.device.shell(f"ip neighbour replace {t.peer} lladdr 02:00:00:00:00:99 dev $INTERFACE")
    t.call("silence a 500")


@row(OVER, "REJ while established: over without DREQ", core=True)
def refused_established(t: Dialogue):
    t.established()
    t.send("REJ", message=2, reason=28, private_data="0102")
    t.calls("event l", "state b", "disconnect b")
    t.settle()
    t.call("silence l 50")


@row(OVER, "REJ after DREQ")
def refused_disconnecting(t: Dialogue):
    t.established()
    with t.prepared():
        t.call("disconnect b")
        t.receive()
    t.send("REJ", message=2, reason=28)
    t.calls("event l", "disconnect b")
    t.settle()


@row(OVER, "nobody answers the DREQ of the side that was asked", core=True)
def dreq_unanswered(t: Dialogue):
    t.established(local_cm_response_timeout=14, max_cm_retries=2)
    t.call("disconnect b")
    t.receive()
    t.calls("event l", "event l")


@row(OVER, "nobody answers the DREQ of the side that has asked", slow=True)
def dreq_unanswered_active(t: Dialogue):
    t.connected()
    t.call("disconnect a")
    t.receive()
    t.calls("event a", "event a")


@row(OVER, "nobody answers the REQ", slow=True)
def req_unanswered(t: Dialogue):
    t.requesting()
    t.calls("event a", "state a", "disconnect a")
    t.send("REP")
    t.settle()


@row(OVER, "the peer's MRA has a short service timeout: the REQ's repetitions, as many as before, end sooner", slow=True)
def req_mra_short(t: Dialogue):
    with t.prepared():
        t.calls("id a", "option a 0 3 8 1", f"resolved a {t.peer} {t.port}", "qp a", "connect a")
        t.receive()
    t.send("MRA", local_comm_id=t.new_id(), service_timeout=8)
    t.call("event a")


@row(OVER, "nobody answers the SIDR_REQ", slow=True)
def sidr_unanswered(t: Dialogue):
    t.datagrams_requested()
    t.call("event a")


@row(OVER, "destroyed while established: DREQ", core=True)
def destroyed(t: Dialogue):
    t.established()
    t.call("destroy b")
    t.receive()
    t.send("DREQ")
    t.settle()


@row(OVER, "destroyed after DREQ: no other message")
def destroyed_disconnecting(t: Dialogue):
    t.established()
    with t.prepared():
        t.call("disconnect b")
        t.receive()
    t.call("destroy b")
    t.settle()


@row(OVER, "destroyed in timewait: a further DREQ is answered as any of a connection that there is not")
def destroyed_timewait(t: Dialogue):
    t.established(primary__local_ack_timeout=20)
    with t.prepared():
        sent = t.send("DREQ")
        t.calls("event l", "disconnect b")
        t.receive()
    t.call("destroy b")
    t.again(sent)
    t.receive()


@row(OVER, "the program disconnects before RTU: nothing")
def disconnect_before_rtu(t: Dialogue):
    t.accepted()
    t.call("disconnect b")
    t.settle()


@row(OVER, "the program disconnects before it has answered the request")
def disconnect_unanswered(t: Dialogue):
    t.requested()
    t.call("disconnect b")
    t.settle()


@row(OVER, "the program disconnects before the peer has answered the REQ")
def disconnect_requesting(t: Dialogue):
    t.requesting()
    t.call("disconnect a")
    t.settle()


CALLS = "Calls and their errors"


def only_calls(name: str, rule: str, *commands: str, differs: str | None = None, core: bool = False):
    """What stands for itself: {address} is the device's own, {peer} the peer's, {port} the service's."""

    def hold(t: Dialogue):
        for command in commands:
            t.call(command.format(address=t.address, peer=t.peer, port=t.port))

    hold.__name__ = name
    row(CALLS, rule, differs=differs, core=core)(hold)


only_calls("bind_foreign", "bind to an address of another host", "id a", "bind a 10.77.0.4 {port}", "bind a {address} {port}", core=True)
only_calls("bind_twice", "bind twice", "id a", "bind a {address} {port}", "bind a {address} {port}")
only_calls("bind_in_use", "bind to a port that is in use", "id a", "bind a {address} {port}", "id b", "bind b {address} {port}",
           "bind b 0.0.0.0 {port}", "bind b :: {port}", "bind b fd77::2 {port}")
only_calls("bind_in_use_wildcard", "bind to a port that a wildcard has", "id a", "bind a 0.0.0.0 {port}", "id b",
           "bind b {address} {port}", "bind b 0.0.0.0 {port}", "bind b :: {port}")
only_calls("bind_other_space", "the same port of datagrams and of connections", "id a", "bind a {address} {port}", "id b udp",
           "bind b {address} {port}")
only_calls("bind_reuse", "addresses reused", "id a", "option a 0 1 1 4", "bind a {address} {port}", "id b", "option b 0 1 1 4",
           "bind b {address} {port}", "listen a 1", "listen b 1", "destroy b", "listen a 1")
only_calls("bind_two_families", "wildcards of both families, each for itself", "id a", "option a 0 2 1 4", "bind a 0.0.0.0 {port}",
           "id b", "option b 0 2 1 4", "bind b :: {port}", "listen a 1", "listen b 1")
only_calls("bind_again_after_destroy", "a port is free at once", "id a", "bind a {address} {port}", "listen a 1", "destroy a",
           "id b", "bind b {address} {port}", "listen b 1")
only_calls("bind_link_local", "bind to a link-local address without scope", "id a", "bind a fe80::1 {port}")
only_calls("bind_loopback", "bind to a loopback address", "id a", "bind a 127.0.0.1 {port}", "addresses a")
only_calls("bind_any_port", "bind to port 0", "id a", "bind a {address} 0", "addresses a")
only_calls("listen_unbound", "listen without bind", "id a", "listen a 1", "addresses a", "listen a 1")
only_calls("listen_resolved", "listen on an ID that has resolved", "id a", "resolve a {peer} {port}", "event a", "listen a 1")
only_calls("resolve_twice", "resolve twice, and out of turn", "id a", "resolve a {peer} {port}", "event a",
           "resolve a {peer} {port}", "bind a {address} {port}", "route a 0", "route a", "event a", "route a",
           "resolve a {peer} {port}")
only_calls("resolve_bound", "resolve from a bound address", "id a", "bind a {address} 0", "resolve a {peer} {port}", "event a",
           "addresses a")
only_calls("resolve_other_family", "resolve from an address of the other family", "id a", "bind a fd77::2 0",
           "resolve a {peer} {port}")
only_calls("resolve_no_route", "resolve an address without a route", "id a", "resolve a 10.99.0.1 {port}", "addresses a",
           "resolve a {peer} {port}", "event a")
only_calls("resolve_no_route_ipv6", "resolve an IPv6 address without a route", "id a", "resolve a fd99::1 {port}")
only_calls("resolve_nobody", "resolve an address that nobody has, then another", "id a", "resolve a 10.77.0.6 {port} 1500", "event a",
           "resolve a {peer} {port}", "event a")
only_calls("resolve_other_interface", "resolve an address behind an interface without device", "id a",
           "resolve a 10.77.1.1 {port}", "event a",
           differs="in the machine rxe is on one interface; for UCM each interface that can be one is a device")
only_calls("resolve_multicast", "resolve a multicast address, for connections and for datagrams", "id a",
           "resolve a 224.1.1.1 {port}", "silence a 500", "id b udp", "resolve b 224.1.1.1 {port}", "silence b 500")
only_calls("resolve_broadcast", "resolve a broadcast address", "id a", "resolve a 10.77.0.255 {port} 1500", "silence a 500",
           differs="a broadcast address is no peer's; UCM says so at once")
only_calls("connect_early", "connect before the route is known", "id a", "resolve a {peer} {port}", "event a", "connect a")
only_calls("connect_too_much", "connect with more private data than fits, and with more than the device has", "id a",
           "resolved a {peer} {port}", "qp a", "connect a data=57", "connect a rr=200", "connect a depth=200")
only_calls("connect_datagrams_too_much", "a datagram request with more private data than fits", "id a udp",
           "resolved a {peer} {port}", "qp a", "connect a data=181")
only_calls("accept_nothing", "accept, reject, establish, disconnect and notify without a request", "id a", "bind a {address} {port}",
           "ownqp a", "accept a", "reject a 0", "establish a", "disconnect a", "notify a 4")
only_calls("accept_listener", "accept and reject on a listener", "id a", "bind a {address} {port}", "listen a 1", "ownqp a", "accept a",
           "reject a 0", "disconnect a", "resolve a {peer} {port}",
           differs="there is nothing to disconnect; Linux says so, too, when the listener is on a wildcard")
only_calls("two_qps", "two QPs for one ID", "id a", "resolved a {peer} {port}", "qp a", "qp a", "state a", "destroy a")
only_calls("qp_early", "a QP on an ID that is bound to an address", "id a", "bind a {address} {port}", "qp a", "state a")
only_calls("options", "options: wrong lengths, names and levels", "id a", "option a 0 0 32 1", "option a 0 0 32 4", "option a 0 1 1 1",
           "option a 0 1 1 4", "option a 0 1 0 4", "option a 0 2 1 1", "option a 0 2 1 4", "option a 0 3 14 1", "option a 0 3 14 4",
           "option a 0 9 1 4", "option a 1 9 1 4", "option a 7 0 1 1")
only_calls("option_large", "an ACK timeout of more than five bits", "id a", "option a 0 3 32 1",
           differs="it has no place in a REQ")
only_calls("option_paths", "path records of a wrong length", "id a", "option a 1 1 1 4",
           differs="UCM takes no path records of any length: there are none on RoCE")
only_calls("options_bound", "options on a bound ID and on a listener", "id a", "bind a {address} {port}", "option a 0 1 1 4",
           "option a 0 1 0 4", "option a 0 2 0 4", "option a 0 0 8 1", "listen a 1", "option a 0 1 1 4", "option a 0 2 0 4",
           "option a 0 0 8 1")
only_calls("options_datagrams", "options on a datagram ID", "id a udp", "option a 0 3 14 1", "option a 0 0 8 1", "option a 0 1 1 4")
only_calls("options_resolved", "options on an ID that has resolved", "id a", "resolved a {peer} {port}", "option a 0 1 1 4",
           "option a 0 1 0 4", "option a 0 2 1 4", "option a 0 0 8 1", "option a 0 3 14 1")


@row(CALLS, "a program that reads no event of a request: REJ is not told, accept fails")
def refused_unread(t: Dialogue):
    t.requested()
    t.send("REJ", message=1, reason=28, remote_comm_id=0)
    t.settle()
    t.calls("silence l 50", "qp b", "accept b")


@row(CALLS, "a synchronous ID is refused")
def synchronous_refused(t: Dialogue):
    with t.prepared():
        t.call("synchronous a")
    t.calls(f"resolve a {t.peer} {t.port}", "route a", "qp a")
    t.begin("connect a")
    t.receive()
    t.send("REJ", reason=8, local_comm_id=0)
    t.finish()


@row(CALLS, "a synchronous ID is accepted, and disconnects")
def synchronous_accepted(t: Dialogue):
    with t.prepared():
        t.calls("synchronous a", f"resolve a {t.peer} {t.port}", "route a", "qp a")
    t.begin("connect a")
    t.receive()
    t.send("REP")
    t.receive()
    t.finish()
    t.begin("disconnect a")
    t.receive()
    t.send("DREP")
    t.finish()


@row(CALLS, "a synchronous ID resolves an address that nobody has")
def synchronous_nobody(t: Dialogue):
    with t.prepared():
        t.call("synchronous a")
    t.call(f"resolve a 10.77.0.5 {t.port} 1500")


@row(CALLS, "a synchronous listener")
def synchronous_listener(t: Dialogue):
    with t.prepared():
        t.calls("synchronous l", f"bind l {t.address} {t.port}", "listen l 4")
    t.begin("request l b")
    t.send("REQ")
    t.finish()
    t.call("qp b")
    t.begin("accept b")
    t.receive()
    t.send("RTU")
    t.finish()


@row(CALLS, "get_request on an ID with a channel")
def get_request_wrong(t: Dialogue):
    with t.prepared():
        t.calls("id l", f"bind l {t.address} {t.port}", "listen l 4")
    t.call("request l b")


ATTRIBUTES = "QP attributes"


def attributes(t: Dialogue, name: str, *states: str):
    for state in states or ("INIT", "RTR", "RTS", "SQD"):
        t.call(f"attributes {name} {state}")


@row(ATTRIBUTES, "of an ID without device")
def attributes_idle(t: Dialogue):
    with t.prepared():
        t.call("id a")
    attributes(t, "a")


@row(ATTRIBUTES, "of a bound ID")
def attributes_bound(t: Dialogue):
    with t.prepared():
        t.calls("id a", f"bind a {t.address} {t.port}")
    attributes(t, "a")


@row(ATTRIBUTES, "before connect")
def attributes_resolved(t: Dialogue):
    t.resolved()
    attributes(t, "a")


@row(ATTRIBUTES, "after connect, before the answer")
def attributes_requesting(t: Dialogue):
    t.requesting()
    attributes(t, "a")


@row(ATTRIBUTES, "after the answer, before establish", core=True)
def attributes_answered(t: Dialogue):
    t.answered()
    attributes(t, "a")


@row(ATTRIBUTES, "after the answer with another target ACK delay")
def attributes_ack_delay(t: Dialogue):
    t.answered(target_ack_delay=24)
    attributes(t, "a", "RTS")


@row(ATTRIBUTES, "of the active side, established, with type of service and ACK timeout")
def attributes_established(t: Dialogue):
    with t.prepared():
        t.calls("id a", "option a 0 0 40 1", "option a 0 3 14 1", f"resolved a {t.peer} {t.port}", "ownqp a", "connect a rr=0 depth=0")
        t.receive()
        t.send("REP", responder_resources=0, initiator_depth=0)
        t.calls("event a", "establish a")
        t.receive()
    attributes(t, "a")


@row(ATTRIBUTES, "of a request", core=True)
def attributes_requested(t: Dialogue):
    t.requested(primary__local_ack_timeout=17)
    attributes(t, "b")


@row(ATTRIBUTES, "of a request, over IPv6")
def attributes_requested_ipv6(t: Dialogue):
    t.version = 6
    t.requested(primary__traffic_class=8, primary__hop_limit=3)
    attributes(t, "b")


@row(ATTRIBUTES, "of a request, with the ACK timeout set")
def attributes_requested_timeout(t: Dialogue):
    t.requested(primary__local_ack_timeout=17)
    t.call("option b 0 3 10 1")
    attributes(t, "b", "RTS")


@row(ATTRIBUTES, "of an accepted request: what accept was given")
def attributes_accepted(t: Dialogue):
    t.requested(primary__local_ack_timeout=17)
    with t.prepared():
        t.calls("ownqp b", "accept b rr=7 depth=6")
        t.receive()
    attributes(t, "b")


@row(ATTRIBUTES, "after the end")
def attributes_over(t: Dialogue):
    t.established()
    with t.prepared():
        t.send("DREQ")
        t.calls("event l", "disconnect b")
        t.receive()
    attributes(t, "b")


@row(ATTRIBUTES, "of a refused ID")
def attributes_refused(t: Dialogue):
    t.requesting()
    with t.prepared():
        t.send("REJ", reason=28, local_comm_id=0)
        t.call("event a")
    attributes(t, "a")


@row(ATTRIBUTES, "of a datagram ID")
def attributes_datagrams(t: Dialogue):
    with t.prepared():
        t.calls("id a udp", f"resolved a {t.peer} {t.port}")
    attributes(t, "a")
    t.calls("qp a", "state a")


STATES = "Every call in every state"
IN_EVERY_STATE = (
    "bind_addr", "bind_addr null", "resolve_addr", "resolve_addr null", "resolve_route", "listen", "get_request", "connect",
    "connect null", "accept", "reject", "reject_ece", "establish", "notify", "notify other", "disconnect",
    "set_option TOS", "set_option REUSEADDR", "set_option AFONLY", "set_option ACK_TIMEOUT", "migrate_id", "create_qp",
    "create_qp_ex", "destroy_qp", "init_qp_attr INIT", "init_qp_attr RTR", "init_qp_attr RTS", "create_srq", "create_srq_ex",
    "destroy_srq", "join_multicast", "join_multicast_ex", "leave_multicast", "get_src_port", "get_dst_port", "set_local_ece",
    "get_remote_ece", "get_cm_event", "destroy_id", "destroy_ep", "reg_msgs", "reg_read", "reg_write", "post_recv",
    "post_send", "post_read", "post_write")


def every_state(call: str, differs: str | None = None):
    """The call alone, in every state, with a peer in the same program."""

    def hold(t: Dialogue):
        t.call(f"every {t.address} {call}")

    hold.__name__ = f"every_{call.replace(' ', '_')}"
    function, *variant = call.split()
    row(STATES, " ".join([f"`rdma_{function}`", *variant]), differs=differs)(hold)


OTHERWISE = {
    "connect": "a REQ without a QP: every QP number in use belongs to a program, and UCM looks whether it is this one's",
    "disconnect": "there is nothing to disconnect on a listener; Linux says so, too, when it is on a wildcard",
}
for a_call in IN_EVERY_STATE:
    every_state(a_call, OTHERWISE.get(a_call))
