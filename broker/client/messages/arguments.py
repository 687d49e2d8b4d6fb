"""Arguments of the client's calls: each call takes those of one configuration class.

Other arguments are rejected: features of Pulsar that are not emulated, and typos.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Config:
    ...     topic: str
    ...     size: int = 1
    >>> class Client:
    ...     @takes(Config, {"zipper": "zippers"})
    ...     def open(self, config: Config) -> int:
    ...         return config.size
    >>> Client().open("t", size=2), Client().open("t", zipper=None)
    (2, 1)
    >>> Client().open("t", zipper=str)
    Traceback (most recent call last):
      ...
    ledgerfold.errors.NotAllowed: open: zippers are not emulated (zipper=).
    >>> Client().open("t", sise=2)
    Traceback (most recent call last):
      ...
    ledgerfold.errors.InvalidRequest: open has no argument sise. Did you mean size?

Arguments of Pulsar's Python client are accepted with a value that requests nothing: None, False, or
the default of that client.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Concatenate, Final, ParamSpec, TypeVar

from ledgerfold.broker.client.messages.argument_types import check_type
from ledgerfold.storage.errors import InvalidRequest, NotAllowed

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S")

_CHUNKS: Final = "chunked messages"
_ENCRYPTION: Final = "encryption and encryption keys"


class InvalidConfiguration(InvalidRequest, NotAllowed):
    """Options, or an option and a call, that exclude each other: Pulsar's InvalidConfiguration."""


# Arguments of Pulsar's Python client that are not emulated, and what they would configure.
CLIENT_NOT_EMULATED: Final[Mapping[str, str]] = {
    "io_threads": "more than one I/O thread",
    "message_listener_threads": "shared listener threads (each listener has its own)",
    "concurrent_lookup_requests": "lookups",
    "log_conf_file_path": "log configuration files",
    "stats_interval_in_seconds": "client statistics",
    "logger": "custom loggers (the client logs to Python's logger `ledgerfold`)",
    "connection_timeout_ms": "connection timeouts (use operation_timeout_seconds)",
    "listener_name": "advertised listeners",
}
PRODUCER_NOT_EMULATED: Final[Mapping[str, str]] = {
    "chunking_enabled": _CHUNKS,
    "lazy_start_partitioned_producers": "lazily started partition producers",
    "properties": "producer properties",
    "encryption_key": _ENCRYPTION,
    "crypto_key_reader": _ENCRYPTION,
    "message_router": "custom message routers",
}
CONSUMER_NOT_EMULATED: Final[Mapping[str, str]] = {
    "broker_consumer_stats_cache_time_ms": "cached client statistics",
    "crypto_key_reader": _ENCRYPTION,
    "crypto_failure_action": _ENCRYPTION,
    "replicate_subscription_state_enabled": "replicated subscriptions",
    "max_pending_chunked_message": _CHUNKS,
    "auto_ack_oldest_chunked_message_on_queue_full": _CHUNKS,
    "batch_index_ack_enabled": "batch index acknowledgements",
}
AIO_CONSUMER_NOT_EMULATED: Final[Mapping[str, str]] = {
    **CONSUMER_NOT_EMULATED,
    "message_listener": "message listeners of the asyncio client",
}
READER_NOT_EMULATED: Final[Mapping[str, str]] = {
    "crypto_key_reader": _ENCRYPTION,
    "crypto_failure_action": _ENCRYPTION,
}
AIO_READER_NOT_EMULATED: Final[Mapping[str, str]] = {
    **READER_NOT_EMULATED,
    "reader_listener": "reader listeners of the asyncio client",
}
# Their defaults in Pulsar's client, where those are neither None nor False.
_DEFAULTS: Final[Mapping[str, int]] = {
    "io_threads": 1,
    "message_listener_threads": 1,
    "concurrent_lookup_requests": 50_000,
    "stats_interval_in_seconds": 600,
    "connection_timeout_ms": 10_000,
    "broker_consumer_stats_cache_time_ms": 30_000,
    "max_pending_chunked_message": 10,
}


def takes(
    config: Callable[P, C], not_emulated: Mapping[str, str]
) -> Callable[[Callable[[S, C], R]], Callable[Concatenate[S, P], R]]:
    """Decorates a method that takes a `config`: it is called with the arguments of that class.

    Such a call raises NotAllowed for the arguments in `not_emulated`, and InvalidRequest for
    unknown ones and for positional ones that must be passed by keyword.
    """
    known = inspect.signature(config).parameters
    unnamed = [each.name for each in known.values() if each.kind is not each.KEYWORD_ONLY]

    def around(method: Callable[[S, C], R]) -> Callable[Concatenate[S, P], R]:
        name = method.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @functools.wraps(method)
        def checked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if len(args) > len(unnamed):
                raise InvalidRequest(
                    f"{name} takes {', '.join(unnamed)} by position; pass others by keyword."
                )
            for unknown in [each for each in kwargs if each not in known]:
                if unknown not in not_emulated:
                    raise InvalidRequest(_no_such(name, unknown, set(known)))
                value = kwargs.pop(unknown)
                if not (value is None or value is False or value == _DEFAULTS.get(unknown)):
                    what = not_emulated[unknown]
                    raise NotAllowed(f"{name}: {what} are not emulated ({unknown}=).")
            try:
                shown.bind(self, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name}() {error}") from None
            return method(self, config(*args, **kwargs))

        # The signature that `help` and editors show.
        of_method = inspect.signature(method)
        first = next(iter(of_method.parameters.values()))
        shown = of_method.replace(parameters=[first, *known.values()])
        vars(checked)["__signature__"] = shown
        return checked

    return around


def _no_such(method: str, name: str, names: set[str]) -> str:
    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Arguments: {', '.join(sorted(names))}."
    return f"{method} has no argument {name[:100]}. {hint}"


def check_least(config: object, least: int, *names: str) -> None:
    """Raises InvalidRequest unless these fields are `least` or more."""
    for name in names:
        if not getattr(config, name) >= least:
            raise InvalidRequest(f"{name} must be {least} or more.")


def check_may_time_out(queue_size: int, timeout_millis: object) -> None:
    """Raises InvalidConfiguration for a timeout of a call that fetches its own message, as in
    Pulsar.
    """
    if not queue_size and timeout_millis is not None:
        raise InvalidConfiguration(
            "A receiver_queue_size of 0 does not allow a timeout: a message that arrives "
            "after it would be neither received nor given to others. Use a size of 1 or more."
        )


def check_topic_argument(topic: object) -> None:
    """Raises InvalidRequest for anything but a string."""
    if isinstance(topic, str):
        check_type(topic, (str,), "The topic")
        return
    if isinstance(topic, list | tuple | set | re.Pattern):
        kind = "a pattern" if isinstance(topic, re.Pattern) else "a list of topics"
        raise InvalidRequest(
            f"A topic must be a string, not {kind}: only `subscribe` accepts it. (A partitioned "
            "topic is one topic.)"
        )
    raise InvalidRequest(f"A topic must be a string, not {topic!r:.100}.")


def check_topics_argument(topics: object) -> None:
    """Raises InvalidRequest unless these are a topic, topics, or a pattern of text."""
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise InvalidRequest("A pattern of topics must be a string, not bytes.")
    elif isinstance(topics, list | tuple | set):
        if not topics:
            raise InvalidRequest("A list of topics must not be empty.")
        for topic in topics:
            check_topic_argument(topic)
    elif isinstance(topics, str):
        check_topic_argument(topics)
    else:
        raise InvalidRequest(
            f"A topic must be a string, a list of strings or a pattern, not {topics!r:.100}."
        )
