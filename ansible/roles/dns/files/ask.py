# SPDX-License-Identifier: Apache-2.0
"""ask.py SERVER PORT NAME: prints the addresses that the server has for a name, IPv4 (A) and IPv6 (AAAA), sorted."""

import socket
import struct
import sys


def skip_name(message, at):
    """Return the position after the name at a position (RFC 1035, section 4.1.4)."""
    while message[at]:
        if message[at] & 0xC0:
            return at + 2
        at += 1 + message[at]
    return at + 1


def ask(server, port, name, kind, family):
    """Return the addresses of a name from a server: kind 1 with AF_INET, 28 with AF_INET6."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)

    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.connect((server, port))
        sock.send(query)
        message = sock.recv(4096)

    code, answers = message[3] & 0x0F, struct.unpack(">H", message[6:8])[0]
    if code:
        raise OSError("the server answered with the code %d" % code)

    at, found = skip_name(message, 12) + 4, []
    for _ in range(answers):
        at = skip_name(message, at)
        is_kind, _, _, length = struct.unpack(">HHIH", message[at:at + 10])
        at += 10
        if is_kind == kind:
            found.append(socket.inet_ntop(family, message[at:at + length]))
        at += length
    return found


def main():
    server, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    try:
        found = ask(server, port, name, 1, socket.AF_INET) + ask(server, port, name, 28, socket.AF_INET6)
    except (OSError, struct.error, IndexError) as error:
        sys.exit("%s, port %d, did not answer for %s: %s" % (server, port, name, error))
    print("\n".join(sorted(found)))


main()
