"""Questions to a device under test, which is Linux or UCM: what the peer sends and the application calls, and what both are
answered. A `Dialogue` is one series of them; its list of observations is what is compared.

Every dialogue has a peer with addresses of its own, so that many can go on at the same time."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import ipaddress
import json
import queue
import re
import subprocess
import threading
import time

from lab import PATIENCE_S, Failure, Lab, Namespace

# An application in the machine is at the other end of a connection to this port (guest.py has its addresses).
APPLICATION_PORT = 7778
MACHINE = "10.77.1.2"

ADDRESS = {4: "10.77.0.2", 6: "fd77::2"}  # of the device under test, whichever it is
PEERS_MAX = 243  # with addresses of one /24; the first nine belong to others, or to nobody
ANSWER_S = 150  # longer than any timeout of Linux'

PEER_PORT = 4000
TCP, UDP = 0x0106, 0x0111  # port spaces


STRANGER = PEERS_MAX  # the number of a peer that has no dialogue


def peer_address(number: int, version: int) -> str:
    """Dialogues beyond PEERS_MAX have a peer that cannot be reached."""
    return f"10.77.{2 * (number // (PEERS_MAX + 1))}.{10 + number % (PEERS_MAX + 1)}" if version == 4 else f"fd77::{0x1000 + number:x}"


@dataclasses.dataclass(frozen=True)
class Free:
    """Members of messages, and words of the application's lines, whose values are the sender's own affair."""

    what: str
    members: tuple[str, ...]
    why: str


# Each value is replaced by a name in the order in which they appear, so that what must be equal still is compared.
FREE = (
    Free("comm ID", ("fields.local_comm_id", "fields.remote_comm_id", "fields.request_id"), "chosen by its owner"),
    Free("QPN", ("fields.local_qpn", "fields.remote_qpn", "fields.qpn", "qpn", "dest_qpn"), "chosen by its owner"),
    Free("PSN", ("fields.starting_psn", "rq_psn", "sq_psn"), "random"),
    Free("transaction ID", ("mad.transaction_id",), "chosen by who begins the transaction; answers copy it"),
    Free("GUID", ("fields.local_ca_guid",), "the device's; Linux' follows from the MAC address"),
    Free("port", ("cma.source_port", "local_port", "peer_port"), "ephemeral"),
    Free("flow label", ("fields.primary.flow_label", "flow_label"), "the active side's follows from the ephemeral port"),
)
NAMED = {member: free.what for free in FREE for member in free.members}
ECHOED = ("fields.remote_comm_id", "fields.remote_qpn", "fields.request_id")  # may be the device's own
LEFT_OUT = {
    "bth.psn": "counts the packets of the sender's QP 1",
    "icrc": "checked by itself: a message with a wrong one ends the test",
    "destination": "tells whose dialogue it is",
}


@dataclasses.dataclass(frozen=True)
class Known:
    """A difference that is everywhere: only these two values may stand there, the first one Linux', the second one UCM's."""

    member: str
    linux: int
    ucm: int
    why: str


OLDER = "from a packet lifetime of 18, which kernels from 6.2 on have made 16, as UCM has it"
EVERYWHERE = (
    Known("fields.primary.local_ack_timeout", 19, 17, OLDER),
    Known("timeout", 19, 17, OLDER),
    Known("mad.reserved", 0, 0x5543, "by this mark UCM hosts know each other; Linux sends 0 and reads nothing (`src/cm/peers.h`)"),
)
KNOWN_WORDS = {known.member for known in EVERYWHERE if "." not in known.member}
REPEATED = ("REQ", "REP", "DREQ", "SIDR_REQ")  # until they are answered, at times that are compared nowhere
SAID_TWICE = ("RTU", "DREP")  # by UCM to other systems: nobody answers them


class Ended(Exception):
    """The dialogue cannot go on: what was waited for did not come. What was observed until then counts."""


class Lines:
    """A program that is talked to in lines."""

    def __init__(self, title: str, argv: list[str]):
        self.title = title
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.heard(line.rstrip("\n"))
        self.answers.put(None)

    def heard(self, line: str) -> None:
        self.answers.put(line)

    def say(self, line: str) -> None:
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failure(f"{self.title} has ended: {self.process.stderr.read()}") from error

    def answer(self, question: str) -> str:
        try:
            answer = self.answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise Failure(f"{self.title}: no answer to '{question}'") from None
        if answer is None:
            raise Failure(f"{self.title} ended at '{question}'")
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


class Probe(Lines):
    """cm_probe in a namespace: received messages go to the dialogue whose address they were sent to."""

    def __init__(self, lab: Lab, space: Namespace):
        self.inboxes: dict[str, queue.Queue[dict]] = {}
        self.ready = threading.Event()
        super().__init__("cm_probe", [*space.enter(), "setpriv", "--pdeathsig", "KILL", lab.executable("cm_probe")])
        if not self.ready.wait(PATIENCE_S):
            raise Failure(f"cm_probe did not start: {self.process.stderr.read()}")
        self.saying = threading.Lock()

    def heard(self, line: str) -> None:
        message = json.loads(line)
        if message["message"] == "ready":
            self.ready.set()
        elif message["destination"] in self.inboxes:
            self.inboxes[message["destination"]].put(message)

    def send(self, packet: dict) -> None:
        with self.saying:
            self.say(json.dumps(packet))


class Device:
    """Linux or UCM, a probe that can reach it, and the means to start applications there."""

    def __init__(self, lab: Lab, name: str, near: Namespace, interface: str, application: list[str], shell,
                 after=lambda: None, says_twice: bool = False):
        self.name = name
        self.says_twice = says_twice
        self.shell = shell  # a script there; $INTERFACE is the one that leads to the peers
        self.after = after
        self.interface = interface
        self.near = near
        self.application = application
        near.shell(f"ip -batch - <<'END'\n{self._addresses('add')}END")
        self.probe = Probe(lab, near)

    def _addresses(self, verb: str) -> str:
        return "".join(f"address {verb} {peer_address(number, version)}/{width} dev {self.interface}{' nodad' if verb == 'add' and version == 6 else ''}\n"
                       for number in range(PEERS_MAX + 1) for version, width in ((4, 24), (6, 64)))

    def start_application(self) -> Lines:
        return Lines(f"cm_calls on {self.name}", self.application)

    def close(self) -> None:
        self.probe.end()
        self.after()
        self.near.shell(f"ip -batch - <<'END'\n{self._addresses('delete')}END")


def linux(lab) -> Device:
    """The machine's kernel, seen from the namespace it is joined to, where no other program may have RoCE's port."""
    # The kernel's CM handles what comes one after the other only if it comes by one processor.
    one_processor = "/sys/devices/virtual/workqueue/cpumask"
    lab.guest.run(f"echo 1 >{one_processor}")
    lab.guest.start(f"nc -ll -p {APPLICATION_PORT} -e /build/bin/cm_calls -")
    lab.guest.run(f"until grep -q ':{APPLICATION_PORT:04X} ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done")
    return Device(lab, "Linux", lab.host, "tap0",
                  [*lab.host.enter(), "setpriv", "--pdeathsig", "KILL", "busybox", "nc", MACHINE, str(APPLICATION_PORT)],
                  shell=lambda script: lab.guest.run(f"INTERFACE=eth0; {script}"),
                  after=lambda: lab.guest.run(f"echo 3 >{one_processor}"))


def ucm(lab: Lab) -> Device:
    near, far = lab.veth_pair()
    # Another interface, as the machine has one.
    far.shell(f"ip link add other type veth peer name other netns {near.anchor.pid}; ip link set other up; ip address add {MACHINE}/24 dev other")
    near.shell("ip link set other up; ip address add 10.77.1.1/24 dev other")
    lab.ucm_run(far, "true").succeed()  # its daemon serves them all
    return Device(lab, "UCM", near, "veth_a", [*far.enter(), "setpriv", "--pdeathsig", "KILL", lab.executable("ucm"), "run", "--",
                                               lab.executable("cm_calls"), "-"],
                  shell=lambda script: far.shell(f"INTERFACE=veth_b; {script}"), says_twice=True)


@dataclasses.dataclass
class Observed:
    brief: str  # for readers
    facts: dict  # everything
    shown: bool

    @property
    def kind(self) -> str:
        """The words that must be the same, without those that are facts."""
        return re.sub(r"\b(\w+)=\S+", lambda word: "" if word[1] in self.facts else word[0], self.brief)


@dataclasses.dataclass
class Sent:
    packet: dict

    def __getitem__(self, member: str):
        return self.packet["fields"][member]


class Names:
    """Names for the values that are free."""

    def __init__(self):
        self._names: dict[str, dict[object, str]] = {}

    def own(self, what: str, value) -> None:
        """A value that the peer has chosen."""
        known = self._names.setdefault(what, {})
        known.setdefault(value, f"{what} {sum(name.endswith('of the peer') for name in known.values()) + 1} of the peer")

    def __call__(self, what: str, value) -> object:
        if value == 0:
            return 0
        known = self._names.setdefault(what, {})
        return known.setdefault(value, f"{what} {sum(not name.endswith('of the peer') for name in known.values()) + 1}")


def flat(message: dict, prefix: str = "") -> dict:
    facts = {}
    for name, value in message.items():
        facts |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return facts


class Dialogue:
    def __init__(self, device: Device, number: int, name: str):
        self.device = device
        self.name = name
        self.number = number
        self.version = 4
        self.port = 20000 + number  # of the listener, or of the service that the application connects to
        self.observed: list[Observed] = []
        self.names = Names()
        self.inbox: queue.Queue[dict] = queue.Queue()
        for version in (4, 6):
            device.probe.inboxes[peer_address(number, version)] = self.inbox
        self.application: Lines | None = None
        self.shown = True
        self.serial = 0
        self.ours = self.theirs = self.their_qpn = self.transaction = 0
        self.seen: collections.Counter[str] = collections.Counter()
        self.command = ""

    # -- the application

    def call(self, command: str) -> str:
        """Makes a call of cm_calls (its source says which there are)."""
        self.begin(command)
        return self.finish()

    def begin(self, command: str) -> None:
        """A call that waits for what the peer will do; finish() must follow."""
        if self.application is None:
            self.application = self.device.start_application()
        self.command = command
        self.application.say(command)

    def finish(self) -> str:
        result = self.application.answer(self.command)
        told = re.sub(r"\b(\w+)=(\S+)", lambda word: f"{word[1]}={self._named(word[1], word[2])}", result)
        if self.command.startswith("silence"):
            self.command = f"event {self.command.split()[1]}"
            told = told or "none"
        facts = {word: int(value) for word, value in re.findall(r"\b(\w+)=(\d+)", told) if word in KNOWN_WORDS}
        self._observe(f"{self.command}: {told}" if told else self.command, facts)
        return result

    def calls(self, *commands: str) -> None:
        for command in commands:
            self.call(command)

    # -- the peer

    @property
    def peer(self) -> str:
        return peer_address(self.number, self.version)

    @property
    def address(self) -> str:
        return ADDRESS[self.version]

    def new_id(self) -> int:
        """Unlike any other of the run."""
        self.serial += 1
        return 0x50000000 | self.number << 12 | self.serial

    def send(self, kind: str, *, mad=None, bth=None, deth=None, cma=None, patch=(), size=256, icrc=0, source=None, **fields) -> Sent:
        """Sends a message; what is not given is as it should be in the connection that goes on."""
        packet = {"message": kind, "source": source or self.peer, "destination": self.address, "bth": bth or {}, "deth": deth or {},
                  "patch": list(patch), "size": size, "icrc": icrc}
        if kind in ("REQ", "SIDR_REQ"):
            self.transaction = self.new_id()
            self.theirs = 0
            packet["cma"] = {"ip_version": self.version, "source_port": PEER_PORT, "source": self.peer,
                             "destination": self.address} | (cma or {})
        packet["fields"] = self._usual(kind) | {name.replace("__", "."): value for name, value in fields.items()}
        packet["mad"] = {"transaction_id": self.new_id() if kind == "DREQ" else self.transaction} | (mad or {})
        for member, value in flat({"fields": packet["fields"], "mad": packet["mad"]}).items():
            if member in NAMED and value and (member not in ECHOED or value != self.theirs):
                self.names.own(NAMED[member], value)
        self.ours = packet["fields"].get("local_comm_id", self.ours)
        self.device.probe.send(packet)
        return Sent(packet)

    def again(self, sent: Sent) -> None:
        self.device.probe.send(sent.packet)

    def _usual(self, kind: str) -> dict:
        """What stands in a message that is as it should be."""
        identity = {"local_comm_id": self.new_id(), "local_ca_guid": 0x0200_0000_0000_0000 | self.number,
                    "local_qpn": 0x100 + self.serial, "starting_psn": 0x100000 + self.serial}
        if kind == "REQ":
            return identity | {
                "service_id": TCP << 16 | self.port, "responder_resources": 4, "initiator_depth": 8,
                "remote_cm_response_timeout": 20, "local_cm_response_timeout": 20, "retry_count": 6, "pkey": 0xFFFF,
                "path_mtu": 3, "rnr_retry_count": 5, "max_cm_retries": 15, "primary.local_lid": 0xFFFF,
                "primary.remote_lid": 0xFFFF, "primary.local_gid": self.peer, "primary.remote_gid": self.address,
                "primary.hop_limit": 64, "primary.local_ack_timeout": 8, "primary.flow_label": 0x12345}
        if kind == "SIDR_REQ":
            return {"request_id": self.new_id(), "pkey": 0xFFFF, "service_id": UDP << 16 | self.port}
        if kind == "SIDR_REP":
            return {"request_id": self.theirs, "qpn": 0x777, "qkey": 0x01234567, "service_id": UDP << 16 | self.port}
        ids = {"local_comm_id": self.ours, "remote_comm_id": self.theirs}
        if kind == "REP":
            return ids | identity | {"responder_resources": 2, "initiator_depth": 4, "target_ack_delay": 15, "rnr_retry_count": 4}
        return ids | ({"remote_qpn": self.their_qpn} if kind == "DREQ" else {})

    def receive(self, patience_s: float = PATIENCE_S) -> dict:
        """The next message, which must come; no repetition."""
        while True:
            try:
                message = self.inbox.get(timeout=patience_s)
            except queue.Empty:
                self._observe("no message", {})
                raise Ended from None
            if self._is_new(message):
                return self._take(message)

    def settle(self, repeated: bool = False) -> list[dict]:
        """Everything that was sent until now has been dealt with when a DREQ for nobody is answered. Returns what came, with
        repetitions of what wants an answer only if asked for."""
        barrier = self.new_id()
        self.device.probe.send({"message": "DREQ", "source": self.peer, "destination": self.address,
                                "fields": {"local_comm_id": barrier, "remote_comm_id": barrier}})
        came = []
        while True:
            try:
                message = self.inbox.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise Failure(f"{self.name}: {self.device.name} does not answer a DREQ for nobody") from None
            if message.get("fields", {}).get("remote_comm_id") == barrier:
                break
            if self._is_new(message) or repeated and message["message"] in REPEATED:
                came.append(self._take(message))
        if not came:
            self._observe("no message", {})
        return came

    def _is_new(self, message: dict) -> bool:
        """Whether it is no repetition of a message that wants an answer, and not the second time of one that does not."""
        text = json.dumps({name: part for name, part in message.items() if name != "bth"}, sort_keys=True)
        self.seen[text] += 1
        if message["message"] in REPEATED:
            return self.seen[text] == 1
        return not (self.device.says_twice and message["message"] in SAID_TWICE and self.seen[text] == 2)

    def _take(self, message: dict) -> dict:
        if message["icrc"] != "good":
            raise Failure(f"{self.name}: {self.device.name} sent a packet with a wrong ICRC: {message}")
        fields = message.get("fields", {})
        theirs = fields.get("local_comm_id") or (fields.get("request_id") if message["message"] == "SIDR_REQ" else 0)
        self.theirs = theirs or self.theirs
        self.their_qpn = fields.get("local_qpn", self.their_qpn)
        if message["message"] in ("REQ", "SIDR_REQ"):
            self.transaction = message["mad"]["transaction_id"]
        facts = {member: self._named(member, value) for member, value in flat(message).items() if member not in LEFT_OUT}
        self._observe(brief(message["message"], facts), facts)
        return message

    def _named(self, member: str, value):
        if member == "fields.ari" and len(value) == 16 and int(value, 16) in self.names._names.get("GUID", {}):
            return self.names("GUID", int(value, 16))
        if member not in NAMED:
            return value
        return self.names(NAMED[member], int(value))

    def _observe(self, text: str, facts: dict) -> None:
        for own, name in ((self.peer, "PEER"), (str(self.port), "PORT")):
            text = re.sub(rf"(?<![\w.]){re.escape(own)}(?!\w)", name, text)
        self.observed.append(Observed(text, facts, self.shown))

    def fail(self, why: str) -> None:
        """Something did not work that is not for comparison."""
        self._observe(f"FAILED: {why}", {})

    # -- what many dialogues begin with; shown only where it differs

    @contextlib.contextmanager
    def prepared(self):
        before, self.shown = self.shown, False
        yield
        self.shown = before

    def pause(self, seconds: float) -> None:
        """For what shall not happen meanwhile."""
        time.sleep(seconds)

    def listen(self, backlog: int = 8, address: str | None = None, datagrams: bool = False) -> None:
        with self.prepared():
            self.calls(f"id l{' udp' if datagrams else ''}", f"bind l {address or self.address} {self.port}", f"listen l {backlog}")

    def requested(self, **fields) -> Sent:
        """A listener has told of a request, as ID b."""
        with self.prepared():
            self.listen()
            sent = self.send("REQ", **fields)
            self.call("event l b")
        return sent

    def accepted(self, **fields) -> Sent:
        """The device has answered with REP."""
        sent = self.requested(**fields)
        with self.prepared():
            self.calls("qp b", "accept b")
            self.receive()
        return sent

    def established(self, **fields) -> Sent:
        """A connection that the peer has asked for, ID b, whose events l's channel has."""
        sent = self.accepted(**fields)
        with self.prepared():
            self.send("RTU")
            self.call("event l")
        return sent

    def resolved(self, name: str = "a", qp: str = "qp") -> None:
        with self.prepared():
            self.calls(f"id {name}", f"resolved {name} {self.peer} {self.port}", f"{qp} {name}")

    def requesting(self, name: str = "a") -> None:
        """The ID has sent a REQ."""
        self.resolved(name)
        with self.prepared():
            self.call(f"connect {name}")
            self.receive()

    def answered(self, **fields) -> Sent:
        """The peer has answered ID a, which has a QP of its own and so has to establish by itself."""
        self.resolved(qp="ownqp")
        with self.prepared():
            self.call("connect a")
            self.receive()
            sent = self.send("REP", **fields)
            self.call("event a")
        return sent

    def datagrams_requested(self) -> None:
        """ID a has sent a SIDR_REQ."""
        with self.prepared():
            self.calls("id a udp", f"resolved a {self.peer} {self.port}", "qp a", "connect a")
            self.receive()

    def connected(self, **fields) -> Sent:
        """A connection that the application has asked for, ID a."""
        self.requesting()
        with self.prepared():
            sent = self.send("REP", **fields)
            self.call("event a")
            self.receive()
        return sent

    def close(self) -> None:
        if self.application is not None:
            self.application.end()
        for version in (4, 6):
            del self.device.probe.inboxes[peer_address(self.number, version)]


MESSAGES = ("REQ", "REP", "other")


def brief(kind: str, facts: dict) -> str:
    """A message in few words."""
    field = {member.removeprefix("fields."): value for member, value in facts.items() if member.startswith("fields.")}
    if kind == "REJ":
        text = f"REJ({MESSAGES[field['message']]}) {field['reason']}"
        if field["ari_length"]:
            ari = field["ari"]
            text += f", ARI {ipaddress.ip_address(bytes.fromhex(ari.ljust(32, '0'))) if field['ari_length'] == 16 else ari}"
        return text + (", no local ID" if field["local_comm_id"] == 0 else "")
    if kind == "MRA":
        return f"MRA({MESSAGES[field['message']]}) {field['service_timeout']}"
    if kind == "SIDR_REP":
        return f"SIDR_REP {field['status']}"
    return kind
