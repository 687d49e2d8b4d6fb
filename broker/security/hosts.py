"""The names under which a server is reached: the permitted values of the header `Host`.

A browser on this machine also runs pages of other sites. Such a site can make its own name resolve
to this machine (DNS rebinding), so that the browser treats requests to this server as requests to
the site. But their `Host` is the site's name. So a server that does not authenticate clients, on a
loopback address, accepts only IP addresses, `localhost`, and names that the operator has
configured.

    >>> hosts = Hosts(["Ledgerfold.example"])
    >>> hosts.permit("127.0.0.1:7680"), hosts.permit("ledgerfold.example"), hosts.permit("[::1]:1")
    (True, True, True)
    >>> hosts.permit("evil.example:7680"), hosts.permit("")
    (False, False)
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit


class Hosts:
    """The hosts of one server. `names`: those besides `localhost` and addresses."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {"localhost", *(each.lower() for each in names if each)}

    def permit(self, host: str) -> bool:
        """Returns whether a header `Host` names this server."""
        name = name_of(host)
        return name in self._names or _is_address(name)

    def refusal(self, host: str) -> str:
        """Returns the reason for which a request is refused."""
        return (
            f"Nothing is served under the name {name_of(host)[:100]!r}. Use an IP address or "
            "localhost, or start the broker with --ui-host NAME."
        )


def name_of(host: str) -> str:
    """Returns the name in "host" or "host:port"; "" if it is not valid."""
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
