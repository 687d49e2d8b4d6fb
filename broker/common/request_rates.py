"""The limit of requests a second of each client, `serve --max-requests-per-second`.

A client is a role that has authenticated, or else an address without its port, over all protocols
together: both are known before the body of a request is read. So roles behind one proxy have limits
of their own, and a request with invalid credentials counts towards its address. Each client has a
token bucket for the requests of one second, which fills at the permitted rate. A request takes a
token, and is refused if there is none.

What counts: a gRPC call, and the opening of a stream; a request of the admin REST API, and of the
page; a connection of Pulsar's protocol, and each of its commands that is answered. Messages,
acknowledgements and permits of an open producer, consumer or reader do not count: flow control
bounds them.

  >>> rates = RequestRates(2, now_s=lambda: 0.0)
  >>> for _ in range(3):
  ...     rates.take("10.0.0.1")
  Traceback (most recent call last):
    ...
  ledgerfold.errors.TooManyRequests: More than 2 requests a second from 10.0.0.1...

Bound: CLIENTS_MAX buckets; the least recently used one is dropped. It runs on one event loop.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from ledgerfold.storage.errors import TooManyRequests

CLIENTS_MAX = 10_000


class RequestRates:
    """The buckets of all clients of one broker."""

    def __init__(self, per_second: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._now_s = per_second, now_s
        # By client: the requests in its bucket, and when.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Counts a request of a client. Raises TooManyRequests."""
        now_s, most = self._now_s(), self._per_second
        remaining, then_s = self._buckets.pop(client, (most, now_s))
        remaining = min(most, remaining + (now_s - then_s) * most)
        is_refused = remaining < 1
        self._buckets[client] = (remaining if is_refused else remaining - 1), now_s
        if len(self._buckets) > CLIENTS_MAX:
            self._buckets.popitem(last=False)
        if is_refused:
            raise TooManyRequests(
                f"More than {most} requests a second from {client}: send fewer, or start the "
                "broker with a higher --max-requests-per-second."
            )


def rates_of(per_second: int) -> RequestRates | None:
    """Returns the limit of a broker; None for 0, without one."""
    return RequestRates(per_second) if per_second else None


def host_of(address: str) -> str:
    """Returns an address without its port.

    >>> host_of("127.0.0.1:7650"), host_of("[::1]:7650"), host_of("::1:7650")
    ('127.0.0.1', '::1', '::1')
    """
    return address.rpartition(":")[0].strip("[]")
