"""Runs a shell script in the virtual machine, with its output and exit code; when this process ends, so do the script's.

    python3 run_in_guest.py SCRIPT        in the network namespace that the machine is joined to

Exit code 125: the machine did not answer or broke off. guest/agent is the other end.
"""

import socket
import sys

AGENT = ("10.77.1.2", 7777)
TRAILER = 4  # a zero byte and three columns


def main() -> int:
    script = sys.argv[1].encode()
    try:
        connection = socket.create_connection(AGENT, timeout=10)
        connection.settimeout(None)
        connection.sendall(b"%d\n" % len(script) + script)
        held = b""  # what may be the exit code and not output
        while received := connection.recv(65536):
            held += received
            start = held.find(b"\0", max(0, len(held) - TRAILER))
            output, held = (held, b"") if start < 0 else (held[:start], held[start:])
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
    except OSError as error:
        print(f"the virtual machine: {error}")
        return 125
    if len(held) != TRAILER:
        print("the virtual machine broke off")
        return 125
    return int(held[1:])


if __name__ == "__main__":
    sys.exit(main())
