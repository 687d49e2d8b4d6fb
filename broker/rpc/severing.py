"""Shuts down the connection of a client that does not read, not even the error of its stream.

The error is queued after earlier responses, and gRPC keeps all of them until the client reads.
gRPC's Python server cannot withdraw a write, so the connection is shut down: the client's other
streams end too, and reconnect if it is alive.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
from pathlib import Path
from urllib.parse import unquote

# Linux, and elsewhere.
_DESCRIPTORS = (Path("/proc/self/fd"), Path("/dev/fd"))
_log = logging.getLogger(__name__)


def sever(peer: str) -> bool:
    """Shuts down the connection of gRPC's peer ("ipv4:127.0.0.1:45414").

    Returns whether it was found.
    Scans all open files: to be run on a thread.
    """
    address = _address(peer)
    folder = next((each for each in _DESCRIPTORS if each.is_dir()), None)
    if address is None or folder is None:
        return False
    _log.warning("The connection of %s is shut down: it reads nothing", peer)
    shut_down = [_shut_down(int(each), address) for each in os.listdir(folder)]
    return any(shut_down)


def _address(peer: str) -> tuple[str, int] | None:
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.strip("[]"), int(port)


def _shut_down(descriptor: int, address: tuple[str, int]) -> bool:
    """Shuts down the descriptor if it is a connection to `address`.

    It works on a duplicate, because the number may be reused meanwhile.
    """
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as opened:
            if _plain(opened.getpeername()[:2]) != address:
                return False
            opened.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Closed meanwhile, or not connected.
        return False
    return True


def _plain(name: object) -> object:
    """Strips ::ffff: of an IPv4 client on a dual-stack socket, which gRPC does not show."""
    if isinstance(name, tuple) and str(name[0]).startswith("::ffff:"):
        return name[0].removeprefix("::ffff:"), name[1]
    return name
