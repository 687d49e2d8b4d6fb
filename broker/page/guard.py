"""Checks that a browser's request comes from this page.

A browser on this machine also runs pages of other sites. These rules protect the broker from them:

* `Host` must be an IP address, `localhost`, or a name that the operator gave
  (broker/security/hosts.py).
* A page of another site may link here, but may neither send a query (a request with parameters) nor
  load anything: `Sec-Fetch-Site` is checked.
* A change needs the `Origin` of this page, and the token that only its forms contain.

    >>> guard = Guard(["ledgerfold.example"])
    >>> guard.check_host("127.0.0.1:7680"), guard.check_host("ledgerfold.example")
    (None, None)
    >>> guard.check_host("evil.example:7680")
    Traceback (most recent call last):
      ...
    ledgerfold.broker.http.answers.Refusal: Nothing is served under the name 'evil.example'. ...
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from ledgerfold.broker.http.answers import Refusal
from ledgerfold.broker.security.hosts import Hosts

TOKEN_BYTES = 32
_OWN_SITES = ("same-origin", "none")


class Guard:
    """The checks of one server. `names`: those under which it is reached, besides `localhost`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._hosts = Hosts(names)
        # The token of this process: a form of an earlier process is refused.
        self.token = secrets.token_urlsafe(TOKEN_BYTES)

    def check(self, headers: Mapping[str, str], *, has_query: bool) -> None:
        """Raises Refusal for a request that a page of another site has caused."""
        self.check_host(headers.get("Host", ""))
        site = headers.get("Sec-Fetch-Site", "none")
        is_link = headers.get("Sec-Fetch-Mode") == "navigate" and not has_query
        if site not in _OWN_SITES and not is_link:
            raise Refusal(
                403, "Another site sent this request. Open this page, and send it from here."
            )

    def check_host(self, host: str) -> None:
        """Raises Refusal for a name under which this page is not served."""
        if not self._hosts.permit(host):
            raise Refusal(421, self._hosts.refusal(host))

    def check_change(self, headers: Mapping[str, str], token: str) -> None:
        """Raises Refusal for a change that this page's own forms did not send."""
        origin, host = urlsplit(headers.get("Origin", "")).netloc, headers.get("Host", "")
        if not origin or origin.lower() != host.lower():
            raise Refusal(403, "A change is only accepted from this page itself.")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            raise Refusal(403, "The broker has restarted since this page was loaded: reload it.")
