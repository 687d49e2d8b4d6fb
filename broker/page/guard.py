"""Checks that a request of a browser is this page's own.

A browser on this machine also runs pages of others. These rules protect the broker from them:

* `Host` must be an IP address, `localhost`, or a name that the operator gave: a foreign name
  that resolves to this machine (DNS rebinding) is refused.
* A page of another site may link here, but neither ask a question (a request with parameters) nor
  load anything: `Sec-Fetch-Site`.
* A change needs the `Origin` of this page, and the token that only its forms contain.

    >>> guard = Guard(["ledgerfold.example"])
    >>> guard.check_host("127.0.0.1:7680"), guard.check_host("ledgerfold.example")
    (None, None)
    >>> guard.check_host("evil.example:7680")
    Traceback (most recent call last):
      ...
    ledgerfold.broker.http.answers.Refusal: This page is not served under the name ...
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from ledgerfold.broker.http.answers import Refusal

TOKEN_BYTES = 32
_OWN_SITES = ("same-origin", "none")


class Guard:
    """The checks of one server. `names`: those under which it is reached, besides `localhost`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {"localhost", *(each.lower() for each in names)}
        # The token of this process: a form of an earlier process is refused.
        self.token = secrets.token_urlsafe(TOKEN_BYTES)

    def check(self, headers: Mapping[str, str], *, has_query: bool) -> None:
        """Raises Refusal for a request that a page of another site has caused."""
        self.check_host(headers.get("Host", ""))
        site = headers.get("Sec-Fetch-Site", "none")
        is_link = headers.get("Sec-Fetch-Mode") == "navigate" and not has_query
        if site not in _OWN_SITES and not is_link:
            raise Refusal(403, "Another site asked for this. Open the page itself, and ask there.")

    def check_host(self, host: str) -> None:
        """Raises Refusal for a name under which this page is not served."""
        name = _host_name(host)
        if name not in self._names and not _is_address(name):
            raise Refusal(
                421,
                f"This page is not served under the name {name[:100]!r}. Use an IP address or "
                "localhost, or start the broker with --ui-host NAME.",
            )

    def check_change(self, headers: Mapping[str, str], token: str) -> None:
        """Raises Refusal for a change that this page's own forms did not send."""
        origin, host = urlsplit(headers.get("Origin", "")).netloc, headers.get("Host", "")
        if not origin or origin.lower() != host.lower():
            raise Refusal(403, "A change is only accepted from this page itself.")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            raise Refusal(403, "The page is older than the broker's start: reload it.")


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
