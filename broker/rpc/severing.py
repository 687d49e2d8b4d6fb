"""Ends the connection of a client that takes nothing, not even that its stream is over.

An error waits behind what was sent before it, and gRPC keeps all of it for as long as the client
reads none. Nothing in gRPC's Python server takes a call back, so its connection is shut down: the
client's other streams go with it, and come back if it is alive.
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
    """Shuts down the connection that gRPC calls so ("ipv4:127.0.0.1:45414"); whether it was found.

    Looks at every open file: for a thread.
    """
    address = _address(peer)
    folder = next((each for each in _DESCRIPTORS if each.is_dir()), None)
    if address is None or folder is None:
        return False
    _log.warning("The connection of %s is shut down: it takes nothing", peer)
    shut_down = [_shut_down(int(each), address) for each in os.listdir(folder)]
    return any(shut_down)


def _address(peer: str) -> tuple[str, int] | None:
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.strip("[]"), int(port)


def _shut_down(descriptor: int, address: tuple[str, int]) -> bool:
    """If it is a connection to that address. Whatever the number stands for a moment later."""
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
    """An IPv4 client of a socket for both is called ::ffff:127.0.0.1 there, and not by gRPC."""
    if isinstance(name, tuple) and str(name[0]).startswith("::ffff:"):
        return name[0].removeprefix("::ffff:"), name[1]
    return name
