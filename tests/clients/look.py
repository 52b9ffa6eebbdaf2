"""What `ucm list`, `show`, `stats`, `trace`, `capture` and `record` tell of the programs that run."""

import json
import re
import signal
import subprocess
from xml.etree import ElementTree

import exposition
from lab import ORDINARY_UID, Failure, Lab, wait_until
from programs import RPING_PORT, endless_rping, rping


def entries(lab: Lab, space, *filters: str, user: str = "root") -> list[dict]:
    text = lab.ucm(space, "list", "--json", *filters, user=user).succeed()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def established(lab: Lab, space) -> dict:
    wait_until(lambda: len(entries(lab, space, "--state", "established")) == 1, "one established connection")
    return entries(lab, space, "--state", "established")[0]


def contains(text: str, *patterns: str) -> None:
    for pattern in patterns:
        if not re.search(pattern, text):
            raise Failure(f"'{pattern}' is missing in:\n{text}")


def list_and_show(lab: Lab):
    """A connection with all that is known of it on both sides, in 80 columns; its story, also when it is over."""
    path = lab.path("veth4")
    _, client = endless_rping(lab, path)
    one, other = established(lab, path.client), established(lab, path.server)
    for mine, theirs in ((one, other), (other, one)):
        if (mine["local"], mine["local_comm_id"], mine["qpn"]) != (theirs["remote"], theirs["remote_comm_id"],
                                                                   theirs["peer_qpn"]):
            raise Failure(f"two views of one connection: {mine} {theirs}")
    if not one["active"] or other["active"] or one["program"] != "rping":
        raise Failure(f"who asked, and which program? {one} {other}")
    listeners = entries(lab, path.server, "--state", "listening")
    if [entry["local"].split(":")[1] for entry in listeners] != [str(RPING_PORT)]:
        raise Failure(f"listeners: {listeners}")
    if entries(lab, path.client, "--address", "10.77.0.99") or entries(lab, path.client, "--pid", "1"):
        raise Failure("filters let through what does not match")
    text = lab.ucm(path.client, "list").succeed()
    contains(text, f"#{one['id']} established, active", "rping", r"10\.77\.0\.", f"0x{one['local_comm_id']:08x}",
             r"sent \w+ .* ago", r"received \w+ .* ago", r"retries \d+")
    wide = [line for line in text.splitlines() if len(line) > 80]
    if wide:
        raise Failure(f"wider than 80 columns: {wide}")

    story = lab.ucm(path.client, "show", str(one["id"])).succeed()
    contains(story, "call +resolve_addr", r"sent +REQ", r"received +REP +(mra_req_received|req_sent) -> rep_received",
             "event +CONNECT_RESPONSE", r"sent +RTU")
    drawing = ElementTree.fromstring(lab.ucm(path.client, "diagram", str(one["id"])).succeed())
    arrows = [line for line in drawing.iter("{http://www.w3.org/2000/svg}line") if "arrow" in line.get("class")]
    if len(arrows) < len(re.findall(r"(?m)^ +\+[\d.]+  (?:sent|received) ", story)):
        raise Failure(f"{len(arrows)} arrows for:\n{story}")
    client.signal(signal.SIGKILL)
    wait_until(lambda: not entries(lab, path.client), "connection gone")
    comm_id = f"0x{one['local_comm_id']:08x}"
    contains(lab.ucm(path.client, "show", comm_id).succeed(), r"sent +DREQ", "orphaned -> gone")
    missing = lab.ucm(path.client, "show", "4000000000")
    if missing.wait() == 0:
        raise Failure("`ucm show` of nothing succeeds")
    missing.expect("nothing is recorded")


def statistics(lab: Lab):
    path = lab.path("loopback4")
    rping(lab, path, "-S", "100", count=10)
    stats = json.loads(lab.ucm(path.client, "stats", "--json").succeed())
    for message in ("REQ", "REP", "RTU", "DREQ", "DREP"):
        counts = stats["messages"][message]
        if counts["sent"] == 0 or counts["received"] == 0:
            raise Failure(f"{message}: {counts}")
    if stats["set_up_time"]["count"] != 2:  # both sides of one connection
        raise Failure(f"set-up: {stats['set_up_time']}")
    text = lab.ucm(path.client, "stats", "--prometheus").succeed()
    exposition.parse(text)
    contains(text, r'ucm_messages_total\{message="REQ",what="sent"\} [1-9]', r'ucm_connections\{state="established"\} \d',
             r'ucm_state_seconds_bucket\{state="req_sent",le="\+Inf"\} 1\n', r"ucm_set_up_seconds_count 2\n")
    file = lab.directory / "ucm.prom"
    lab.ucm(path.client, "stats", "--prometheus", str(file)).succeed()
    contains(file.read_text(), "# TYPE ucm_set_up_seconds histogram")
    contains(lab.ucm(path.client, "stats").succeed(), r"REQ +[1-9]", "set-up")


def reasons(lab: Lab):
    """Why something failed stands in the log and in the story, with whose it is."""
    path = lab.path("loopback4")
    daemon = lab.start(path.server, lab.executable("ucmd"), "--foreground", "--log-level", "debug")
    wait_until(lambda: lab.ucm(path.server, "stats").wait() == 0, "a daemon")
    lab.ucm_run(path.client, "rping", "-c", "-a", path.address, "-p", "7999").wait()
    line = daemon.expect(r"rping \(process \d+\), ID (\d+) in state connect, 127\.0\.0\.1:\d+ to 127\.0\.0\.1:7999: "
                         r"REJECTED 8: nobody listens \(comm ID 0x[0-9a-f]{8}, of the peer 0x00000000\)")
    contains(lab.ucm(path.client, "show", line.group(1)).succeed(), "event +REJECTED, reason 8: nobody listens")
    lab.ucm_run(path.client, "rping", "-c", "-a", "192.0.2.1").wait()
    daemon.expect(r"resolve_addr \d+: ")
    daemon.end()


def metrics(lab: Lab):
    """Prometheus asks over HTTP, where the settings or the command line say."""
    path = lab.path("loopback4")
    settings = lab.directory / "ucmd.toml"
    settings.write_text('[node]\nmetrics = "9477"\n')
    daemon = lab.start(path.server, lab.executable("ucmd"), "--foreground", "--config", str(settings))
    wait_until(lambda: lab.ucm(path.server, "stats").wait() == 0, "a daemon")
    rping(lab, path, "-S", "100", count=10)
    samples = exposition.parse(path.server.run("curl", "-sS", "--fail", "http://127.0.0.1:9477/metrics"))
    if samples["ucm_set_up_seconds_count"][()] != 2 or samples["ucm_messages_total"][
            ('message="REQ"', 'what="sent"')] < 1:
        raise Failure(f"counts of one connection: {samples}")
    second = lab.start(path.server, lab.executable("ucmd"), "--foreground", "--socket", "@ucm-other", "--metrics", "x")
    if second.wait() == 0:
        raise Failure("metrics are served nowhere")
    second.expect("--metrics: must be PORT, ADDRESS:PORT or")
    daemon.end()
    wait_until(lambda: lab.ucm(path.server, "stats").wait() != 0, "no daemon")
    daemon = lab.start(path.server, lab.executable("ucmd"), "--foreground", "--config", str(settings), "--metrics", "9478")
    wait_until(lambda: lab.ucm(path.server, "stats").wait() == 0, "another daemon")
    exposition.parse(path.server.run("curl", "-sS", "--fail", "http://127.0.0.1:9478/metrics"))
    daemon.end()


def trace_and_capture(lab: Lab):
    """Who watches sees each message as it happens, and Wireshark reads the capture."""
    path = lab.path("veth4")
    server = lab.ucm_run(path.server, "rping", "-s", "-a", path.bind_address)
    lab.wait_listening(path.server, RPING_PORT)
    file = lab.directory / "cm.pcapng"
    trace = lab.ucm(path.server, "trace", "--messages")
    capture = lab.ucm(path.server, "capture", "-w", str(file))
    wait_until(lambda: observers(lab, path.server) == 2, "two observers")
    lab.ucm_run(path.client, "rping", "-c", "-C", "3", "-a", path.address).succeed()
    server.wait()
    # On a busy machine messages come more than once.
    trace.expect("received REQ +new connection, req_queued; service 0x0000000001061c06 qpn")
    trace.expect("sent +REP +for accept, in rep_sent; qpn")
    trace.expect(r"received RTU +(mra_rep_received|rep_sent) -> established|received DREQ +\w*rep\w* -> dreq_received")
    trace.expect("DREP")
    # In the order in which they came first.
    wait_until(lambda: list(dict.fromkeys(packet[0] for packet in captured(file)))[-1:] == ["0x0016"], "captured DREP")
    for packet in captured(file):
        if packet[1:3] != ["1", "1"] or not re.match(r"ID \d+, comm 0x", packet[3]):
            raise Failure(f"checksums or comment: {packet}")
    for program in (trace, capture):
        program.end()
    drawing = ElementTree.fromstring(lab.ucm(path.server, "diagram", str(file)).succeed())
    arrows = [line for line in drawing.iter("{http://www.w3.org/2000/svg}line") if "arrow" in line.get("class")]
    if len(arrows) != len(captured(file)):
        raise Failure(f"{len(arrows)} arrows for {len(captured(file))} messages")


def captured(file) -> list[list[str]]:
    """Attribute, checksums and comment of each packet, as tshark reads them."""
    lines = subprocess.run(["tshark", "-r", str(file), "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
                            "-T", "fields", "-e", "infiniband.mad.attributeid", "-e", "ip.checksum.status", "-e",
                            "udp.checksum.status", "-e", "frame.comment"], check=False, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True).stdout.splitlines()
    return [line.split("\t") for line in lines]


def observers(lab: Lab, space) -> int:
    stats = json.loads(lab.ucm(space, "stats", "--json").succeed())
    return stats["held"]["traces"]


def record_and_replay(lab: Lab):
    """Both sides are recorded while datagrams are lost, and another engine does the same again."""
    path = lab.path("veth4")
    faults = ("--faults", "loss=10,duplicate=5,reorder=5,seed=3,spare-unreliable")
    server = lab.ucm_run(path.server, "rping", "-s", "-a", path.bind_address, options=faults)
    lab.wait_listening(path.server, RPING_PORT)
    # A program that is refused starts the other daemon.
    lab.ucm_run(path.client, "rping", "-c", "-a", path.address, "-p", "7999", options=faults).wait()
    recordings = {}
    for space in (path.client, path.server):
        wait_until(lambda: json.loads(lab.ucm(space, "stats", "--json").succeed())["held"]["connections"] == 0,
                   "no connection")
        file = lab.directory / f"{space.name}.ucmrec"
        recordings[file] = lab.ucm(space, "record", str(file))
        recordings[file].expect("recording to")
    busy = lab.ucm(path.client, "record", str(lab.directory / "second.ucmrec"))
    if busy.wait() == 0:
        raise Failure("two record at the same time")
    busy.expect("somebody records already")
    lab.ucm_run(path.client, "rping", "-c", "-C", "3", "-a", path.address, options=faults).succeed()
    server.wait()
    for file, recording in recordings.items():
        recording.signal(signal.SIGINT)
        recording.succeed()
        contains(lab.ucm(path.client, "replay", str(file)).succeed(), r"[1-9]\d* inputs have the recorded outputs")
        contains(lab.ucm(path.client, "replay", "--step", str(file)).succeed(), r"\d received DREQ|\d received DREP",
                 r"sent +DREQ|sent +DREP", "-> established")
        ElementTree.fromstring(lab.ucm(path.client, "diagram", str(file)).succeed())
        if file.stat().st_mode & 0o077:
            raise Failure(f"others may read {file}")
        damaged = file.with_suffix(".damaged")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)
        refused = lab.ucm(path.client, "replay", str(damaged))
        if refused.wait() != 1:
            raise Failure("a damaged recording is played")
        refused.expect(r"damaged.*: it is damaged.*at byte \d+")


def recording_needs_a_quiet_node(lab: Lab):
    path = lab.path("loopback4")
    _, client = endless_rping(lab, path)
    established_ends = lambda: entries(lab, path.server, "--state", "established")
    wait_until(lambda: len(established_ends()) == 2, "both ends established")
    busy = lab.ucm(path.server, "record", str(lab.directory / "busy.ucmrec"))
    if busy.wait() == 0 or (lab.directory / "busy.ucmrec").exists():
        raise Failure("a recording begins in the middle")
    busy.expect("a recording begins without connections, and there are 2")
    stranger = lab.ucm(path.server, "record", "/tmp/none.ucmrec", user="user")
    if stranger.wait() == 0:
        raise Failure("an ordinary user records")
    stranger.expect("only root")
    client.signal(signal.SIGKILL)


def privacy(lab: Lab):
    """An ordinary user sees what is that user's and nothing of root's, and cannot stop root's daemon; root sees all."""
    path = lab.path("loopback4")
    space = path.server
    server = lab.ucm_run(space, "rping", "-s", "-a", path.bind_address)  # root's, as the daemon that it starts
    lab.wait_listening(space, RPING_PORT)
    own_server = lab.ucm_run(space, "rping", "-s", "-p", "7999", "-a", path.bind_address, user="user")
    lab.wait_listening(space, 7999)
    file = lab.directory / "user.pcapng"
    trace = lab.ucm(space, "trace", user="user")
    capture = lab.ucm(space, "capture", "-w", str(file), user="user")
    wait_until(lambda: observers(lab, space) == 2, "two observers")
    client = lab.ucm_run(space, "rping", "-c", "-C", "100000000", "-a", path.address)
    own_client = lab.ucm_run(space, "rping", "-c", "-C", "100000000", "-p", "7999", "-a", path.address, user="user")
    wait_until(lambda: len(entries(lab, space, "--state", "established")) == 4, "four ends of connections")

    everything = entries(lab, space)
    by_user = {uid: [entry for entry in everything if entry["uid"] == uid] for uid in (0, ORDINARY_UID)}
    if [len(found) for found in by_user.values()] != [3, 3]:
        raise Failure(f"root does not see all: {everything}")
    if {entry["id"] for entry in entries(lab, space, user="user")} != {entry["id"] for entry in by_user[ORDINARY_UID]}:
        raise Failure(f"an ordinary user sees {entries(lab, space, user='user')}")
    ends = {uid: [entry for entry in found if entry["kind"] == "connection"] for uid, found in by_user.items()}

    status = json.loads(lab.ucm(space, "status", "--json", user="user").succeed())
    if {session["pid"] for session in status["sessions"]} != {entry["pid"] for entry in by_user[ORDINARY_UID]}:
        raise Failure(f"programs in an ordinary user's status: {status['sessions']}")
    if [one["local"] for one in status["listeners"]] != [f"{path.bind_address}:7999"]:
        raise Failure(f"listeners in an ordinary user's status: {status['listeners']}")
    if {one["qpn"] for one in status["connections"]} != {entry["qpn"] for entry in ends[ORDINARY_UID]}:
        raise Failure(f"connections in an ordinary user's status: {status['connections']}")
    contains(lab.status(space), f":{RPING_PORT}", ":7999")

    for command in ("show", "diagram"):
        lab.ucm(space, command, str(ends[ORDINARY_UID][0]["id"]), user="user").succeed()
        for entry in ends[0]:
            for name in (str(entry["id"]), f"0x{entry['local_comm_id']:08x}"):
                forbidden = lab.ucm(space, command, name, user="user")
                if forbidden.wait() == 0:
                    raise Failure(f"an ordinary user reads root's story by `ucm {command} {name}`")

    def comm_ids(uid: int) -> list[str]:
        return [f"{entry['local_comm_id']:08x}" for entry in ends[uid]]

    for comm_id in comm_ids(ORDINARY_UID):
        trace.expect(comm_id)
        wait_until(lambda: comm_id in " ".join(packet[3] for packet in captured(file)), f"{comm_id} in the capture")
    watched = trace.output() + " ".join(packet[3] for packet in captured(file))
    if any(comm_id in watched for comm_id in comm_ids(0)):
        raise Failure("an ordinary user's trace or capture tells of root's connections")

    stop = lab.ucm(space, "stop", user="user")
    if stop.wait() == 0:
        raise Failure("an ordinary user stopped root's daemon")
    stop.expect("only root and user 0 may stop this ucmd")
    for program in (server, client, own_server, own_client):
        if not program.running():
            raise Failure(f"{program.title} ended")
        program.signal(signal.SIGKILL)
    for program in (trace, capture):
        program.end()


CASES = {case.__name__: case for case in (list_and_show, statistics, reasons, metrics, trace_and_capture, record_and_replay,
                                            recording_needs_a_quiet_node, privacy)}
for case in CASES.values():
    case.short = case in (list_and_show, trace_and_capture, record_and_replay)
