"""The requests that cases consist of, and their answers. docs/CASES.md explains each.

A request is an operation and fields, an answer is fields; both are JSON. Message ids are `[ledger,
entry, batch index]`, with the partition as a fourth number on a partition; a batch index of -1 is
outside of a batch. A target refuses in two ways: the broker refused (`Refused`), or the target does
not support the operation (`Unsupported`), which is not a failure.

    >>> check_request("has-more", {"name": "r"})
    >>> check_request("has-more", {"nom": "r"})
    Traceback (most recent call last):
    ...
    AssertionError: has-more has no field nom
"""

from __future__ import annotations

from typing import Any, Protocol

# Operation -> its possible fields, in the order of docs/CASES.md.
OPERATIONS: dict[str, str] = {
    "namespace": "namespace",
    "profile": "namespace profile",
    "create": "topic partitions",
    "grow": "topic partitions",
    "delete": "topic force",
    "unload": "topic",
    "trim": "topic",
    "truncate": "topic",
    "terminate": "topic",
    "stats": "topic",
    "internal": "topic",
    "produce": "topic messages batch batchMax compression producer",
    "read": "topic compacted from inclusive max queue seek seekTimestamp",
    "reader": "topic name compacted from inclusive queue",
    "has-more": "name",
    "last-id": "topic name",
    "id-by-time": "topic timestamp",
    "consumer": "topic name sub type compacted position inclusive queue",
    "receive": "name max timeoutMs",
    "ack": "name handle",
    "ack-cumulative": "name handle",
    "nack": "name handle",
    "seek": "name to timestamp",
    "close": "name",
    "subscribe": "topic sub position",
    "unsubscribe": "topic sub",
    "expire": "topic sub seconds",
    "reset-cursor": "topic sub to",
    "view": "topic name listen",
    "view-state": "name",
    "view-refresh": "name",
    "strategy": "topic namespace order settings remove",
    "compact": "topic",
    "compact-outside": "topic order",
    "trigger": "topic",
    "cancel": "topic",
    "compaction-status": "topic",
    "threshold": "topic namespace bytes remove",
    "get-threshold": "topic namespace applied",
    "retention": "topic namespace minutes megabytes",
    "ttl": "namespace seconds",
    "retain-null-key": "namespace retain",
    "emulate": "namespace field value",
    "mark": "",
    "advance": "ms",
    "restart": "",
    "kill": "",
    "hold": "ms",
    "release": "",
    "now": "",
    "kafka-create": "topic config",
    "kafka-config": "topic config",
    "kafka-get-config": "topic",
    "kafka-append": "topic batches origin",
    "kafka-marker": "topic pid type",
    "kafka-roll": "topic",
    "kafka-high-watermark": "topic offset",
    "kafka-log-start": "topic offset",
    "kafka-truncate": "topic offset",
    "kafka-log": "topic",
    "kafka-batches": "topic",
    "kafka-read": "topic offset at timestamp committed max",
    "kafka-plan": "topic",
    "kafka-map": "topic",
    "kafka-clean": "topic",
    "kafka-retention": "",
    "kafka-cleaner": "topic",
    "kafka-set-cleaning": "topic checkpoint uncleanable action",
    "kafka-damage": "topic segment",
}


class Refused(Exception):
    """The broker refused the request. `codes`: an HTTP status, a reason, the name of an error, as
    far as known.
    """

    def __init__(self, message: str, codes: frozenset[str]) -> None:
        super().__init__(message)
        self.codes = codes

    def __str__(self) -> str:
        return f"{' '.join(sorted(self.codes))}: {self.args[0]}"


class Unsupported(Exception):
    """The target does not support the operation, or a part of the request."""


class Target(Protocol):
    """A broker that cases run against.

    `quiet_ms`: the time without messages after which a case assumes that no more follow.
    """

    profile: str
    quiet_ms: int

    def ask(self, operation: str, /, **fields: Any) -> dict[str, Any]:
        """Raises Refused, Unsupported."""


class ClosingTarget(Target, Protocol):
    """A target that holds connections or processes until it is closed."""

    def close(self) -> None: ...


def check_request(operation: str, fields: dict[str, Any]) -> None:
    """Checks that a request is in the table."""
    unknown = fields.keys() - OPERATIONS[operation].split()
    assert not unknown, f"{operation} has no field {' '.join(sorted(unknown))}"
