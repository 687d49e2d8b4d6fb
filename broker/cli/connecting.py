"""What a verb speaks of and to: a topic or namespace by its name, and the broker at --url."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.partition_names import partition_name

if TYPE_CHECKING:
    from ledgerfold.broker.client import Client
    from ledgerfold.broker.client.admin import Admin


_NAMES = {
    "topic": "NAME in public/default, TENANT/NAMESPACE/NAME, or with persistent:// before it",
    "namespace": "TENANT/NAMESPACE",
}


def add_name(parser: argparse.ArgumentParser, of: str = "topic") -> None:
    """The argument that names a topic or a namespace."""
    parser.add_argument(of, help=_NAMES[of])


def refuse_url(options: argparse.Namespace, instead: str) -> None:
    """For what no broker is asked. Raises InvalidRequest when --url is given beside `instead`."""
    if getattr(options, "is_url_given", False):
        raise InvalidRequest(
            f"{instead} asks no broker, and --url names one: leave one of them out."
        )


def admin_of(options: argparse.Namespace) -> Admin:
    from ledgerfold.broker.client.admin import Admin

    return Admin(options.url)


def partitions_of(admin: Admin, topic: str) -> list[str]:
    """Of a partitioned topic's name, its partitions', in order; any other name is its own."""
    count = admin.partitioned_topic_metadata(topic)["partitions"]
    return [partition_name(topic, index) for index in range(count)] or [topic]


def client_of(options: argparse.Namespace) -> Client:
    """Raises Unavailable when nobody answers: at once, where a client would go on trying."""
    from ledgerfold.broker.client import Client

    with admin_of(options) as admin:
        admin.broker_info()
    return Client(options.url)
