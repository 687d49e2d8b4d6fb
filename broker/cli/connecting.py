"""Arguments that name topics and namespaces, and the connection to the broker at --url."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.verbs import argument
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.partition_names import partition_name

if TYPE_CHECKING:
    from ledgerfold.broker.client import Client
    from ledgerfold.broker.client.administration.admin import Admin

# The prefix of the path of a token file.
TOKEN_FILE = "file:"
TOPIC = argument(
    "topic", "NAME in public/default, TENANT/NAMESPACE/NAME, or persistent://TENANT/NAMESPACE/NAME"
)


def refuse_url(options: argparse.Namespace, instead: str) -> None:
    """Raises InvalidRequest if --url is given with `instead`, which uses no broker."""
    if getattr(options, "is_url_given", False):
        raise InvalidRequest(f"{instead} cannot be combined with --url: it uses no broker.")


def credentials_of(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the client's arguments about TLS and authentication: given, or in the environment.

    Variables about TLS have no effect on a broker without TLS. Raises InvalidRequest: of options
    that would have none; OSError: of the token's file.
    """
    url = getattr(options, "url", "")

    def option(name: str) -> str | None:
        credentials: str | None = getattr(options, name, None)
        if name.startswith("tls_") and not _has_tls(url):
            refuse_tls(url, name, credentials)
            return None
        # Empty if the context has none.
        return (
            os.environ.get(f"LEDGERFOLD_{name.upper()}") if credentials is None else credentials
        ) or None

    credentials: dict[str, Any] = {
        "tls_trust_certs_file_path": option("tls_trust_certs"),
        "tls_certificate_file_path": option("tls_client_cert"),
        "tls_private_key_file_path": option("tls_client_key"),
    }
    credentials = {name: value for name, value in credentials.items() if value is not None}
    if getattr(options, "tls_allow_insecure", False):
        refuse_tls(url, "tls_allow_insecure", True)
        credentials["tls_allow_insecure_connection"] = True
    if token := option("token"):
        # It loads nothing but this.
        from ledgerfold.broker.client.streams.credentials import AuthenticationToken

        credentials["authentication"] = AuthenticationToken(token_in(token))
    return credentials


def _has_tls(url: str) -> bool:
    return url.partition("://")[0].endswith("+ssl")


def refuse_tls(url: str, name: str, value: object) -> None:
    """Raises InvalidRequest for an option, or a context's value, that has no effect without TLS."""
    if value and not _has_tls(url):
        option = f"--{name.replace('_', '-')}"
        raise InvalidRequest(
            f"{option} has no effect without TLS, which {url} does not use: begin the URL with "
            "ledgerfold+ssl://."
        )


def token_in(text: str) -> str:
    """Returns a token given as such, or as `file:PATH`. Raises OSError, InvalidRequest."""
    if not text.startswith(TOKEN_FILE):
        if os.path.isfile(text):
            raise InvalidRequest(f"{text} is a file, not a token: give --token {TOKEN_FILE}{text}.")
        return text
    return Path(text.removeprefix(TOKEN_FILE).removeprefix("//")).read_text().strip()


def admin_of(options: argparse.Namespace, timeout_seconds: float = 30) -> Admin:
    from ledgerfold.broker.client.administration.admin import Admin

    return Admin(options.url, timeout_seconds=timeout_seconds, **credentials_of(options))


def partitions_of(admin: Admin, topic: str) -> list[str]:
    """Returns the names of a partitioned topic's partitions, in order; for another topic its own
    name.
    """
    count = admin.partitioned_topic_metadata(topic)["partitions"]
    return [partition_name(topic, index) for index in range(count)] or [topic]


def client_of(options: argparse.Namespace) -> Client:
    """Returns a client. Raises Unavailable at once if the broker does not answer; a client would
    retry.
    """
    from ledgerfold.broker.client import Client

    with admin_of(options) as admin:
        admin.broker_info()
    return Client(options.url, **credentials_of(options))


def print_why_waiting(admin: Admin) -> None:
    if why := why_waiting(admin):
        print(why, file=sys.stderr)


def why_waiting(admin: Admin, *, ends_at_once: bool = False) -> str:
    """Returns why a run cannot start yet, for example because Spark is starting; "" if it can.

    `ends_at_once`: also if no compactor is available, so that a run fails at once; the text names
    what to install. A caller that waits for the run gets this text as the run's error.
    """
    from ledgerfold.v1 import admin_pb2

    states = [admin_pb2.COMPACTOR_STATE_STARTING, admin_pb2.COMPACTOR_STATE_RESTARTING]
    if ends_at_once:
        states.append(admin_pb2.COMPACTOR_STATE_UNAVAILABLE)
    info = admin.broker_info(await_compactor=True)
    return str(info.compactor_message) if info.compactor_state in states else ""
