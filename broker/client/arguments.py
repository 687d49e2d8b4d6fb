"""Arguments that a call does not have: what of Pulsar is not emulated, or a slip of the pen.

    >>> class Client:
    ...     @says_unknown({"schema": "schemas"})
    ...     def open(self, topic: str, *, size: int = 1) -> int:
    ...         return size
    >>> Client().open("t", size=2), Client().open("t", schema=None)
    (2, 1)
    >>> Client().open("t", schema=str)
    Traceback (most recent call last):
      ...
    ledgerfold.storage.errors.NotAllowed: open: schemas are not emulated (schema=).
    >>> Client().open("t", sise=2)
    Traceback (most recent call last):
      ...
    ledgerfold.storage.errors.InvalidRequest: open has no argument sise. Did you mean size?

Those of Pulsar's Python client that ask for nothing, None and False, are taken.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import IntEnum
from typing import Final, ParamSpec, TypeVar

from ledgerfold.storage.errors import InvalidRequest, NotAllowed

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=IntEnum)

_TLS: Final = "TLS connections"
_CHUNKS: Final = "chunks of large messages"
_ENCRYPTION: Final = "encryption and its keys"
_SCHEMAS: Final = "schemas"
_PATTERNS: Final = "subscriptions by a pattern"

# By argument of Pulsar's Python client: what there is none of here.
OF_CLIENT: Final[Mapping[str, str]] = {
    "authentication": "users and their authentication",
    "io_threads": "more than one I/O thread",
    "message_listener_threads": "threads that listeners share (each has its own)",
    "concurrent_lookup_requests": "lookups",
    "log_conf_file_path": "files that configure the log",
    "stats_interval_in_seconds": "statistics of the client",
    "use_tls": _TLS,
    "tls_trust_certs_file_path": _TLS,
    "tls_allow_insecure_connection": _TLS,
    "tls_validate_hostname": _TLS,
    "tls_private_key_file_path": _TLS,
    "tls_certificate_file_path": _TLS,
    "logger": "loggers of one's own (it logs by Python's logging, as `ledgerfold`)",
    "connection_timeout_ms": "time limits of connecting (operation_timeout_seconds has it)",
    "listener_name": "advertised listeners",
}
OF_PRODUCER: Final[Mapping[str, str]] = {
    "schema": _SCHEMAS,
    "chunking_enabled": _CHUNKS,
    "lazy_start_partitioned_producers": "partitions' producers that start late",
    "properties": "properties of producers",
    "encryption_key": _ENCRYPTION,
    "crypto_key_reader": _ENCRYPTION,
    "access_mode": "access modes of producers",
    "message_router": "routers of one's own",
}
OF_CONSUMER: Final[Mapping[str, str]] = {
    "schema": _SCHEMAS,
    "broker_consumer_stats_cache_time_ms": "statistics that the client keeps",
    "pattern_auto_discovery_period": _PATTERNS,
    "regex_subscription_mode": _PATTERNS,
    "crypto_key_reader": _ENCRYPTION,
    "crypto_failure_action": _ENCRYPTION,
    "replicate_subscription_state_enabled": "replicated subscriptions",
    "max_pending_chunked_message": _CHUNKS,
    "auto_ack_oldest_chunked_message_on_queue_full": _CHUNKS,
    "batch_receive_policy": "batches of received messages",
    "key_shared_policy": "policies of Key_Shared",
    "batch_index_ack_enabled": "acknowledgements of batch indexes to the broker",
    "dead_letter_policy": "dead letters",
}
OF_AIO_CONSUMER: Final[Mapping[str, str]] = {
    **OF_CONSUMER,
    "message_listener": "message listeners of asyncio's client",
}
OF_READER: Final[Mapping[str, str]] = {
    "schema": _SCHEMAS,
    "reader_listener": "listeners of readers",
    "subscription_role_prefix": "prefixes of readers' subscriptions",
    "crypto_key_reader": _ENCRYPTION,
    "crypto_failure_action": _ENCRYPTION,
}


def says_unknown(not_emulated: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Around a method. Raises NotAllowed for what is named there, InvalidRequest for what nobody
    knows, and for arguments that must be named.
    """

    def around(method: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(method).parameters.values()
        known = {each.name for each in parameters}
        unnamed = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
        name = method.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @functools.wraps(method)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if len(args) > len(unnamed):
                raise InvalidRequest(
                    f"{name} takes {', '.join(unnamed[1:])} by their places; name the others."
                )
            for unknown in [each for each in kwargs if each not in known]:
                if unknown not in not_emulated:
                    raise InvalidRequest(_no_such(name, unknown, known - {"self"}))
                value = kwargs.pop(unknown)
                if value is not None and value is not False:
                    what = not_emulated[unknown]
                    raise NotAllowed(f"{name}: {what} are not emulated ({unknown}=).")
            return method(*args, **kwargs)

        return checked

    return around


def _no_such(method: str, name: str, known: set[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
    return f"{method} has no argument {name[:100]}. {hint}"


def chosen(kind: type[E], value: object, argument: str) -> E:
    """One of these, or its name. Raises InvalidRequest."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    there_are = ", ".join(kind.__members__)
    raise InvalidRequest(f"{argument} is a {kind.__name__}, {there_are}, not {value!r:.100}.")


def name_choices(config: object, **kinds: type[IntEnum]) -> None:
    """Those fields of a frozen dataclass hold a choice, where they held its name, too."""
    for name, kind in kinds.items():
        object.__setattr__(config, name, chosen(kind, getattr(config, name), name))


def one_topic(topic: object) -> None:
    """Raises NotAllowed for a list or a pattern, InvalidRequest for what is no name."""
    if isinstance(topic, list | tuple | set | re.Pattern):
        kind = "a pattern" if isinstance(topic, re.Pattern) else "a list of topics"
        raise NotAllowed(
            f"{kind.capitalize()} is not emulated: subscribe to each topic by itself. (The "
            "partitions of a partitioned topic are one topic.)"
        )
    if not isinstance(topic, str):
        raise InvalidRequest(f"A topic is a name, not {topic!r:.100}.")
