"""Ports for processes that tests start with a given one, or start again at the same one.

>>> 20_000 <= free_port() < 30_000
True
"""

from __future__ import annotations

import random
import socket

# Below the ports that systems assign to connections and to listeners without a port (Linux: from
# 32768 on). One of those could be assigned to another process while nobody listens at it.
_PORTS = range(20_000, 30_000)


def free_port() -> int:
    """Returns a port of 127.0.0.1 at which nobody listens."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
