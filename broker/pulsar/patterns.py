"""Patterns of topic names, as clients that subscribe to several topics send them.

A pattern is compared with the whole name, without domain and partition. As in Pulsar's broker, the
engine is RE2, whose time is linear, without look-around and back references.

  >>> pattern = Pattern.of("persistent://public/default/orders-.*")
  >>> pattern.matches("persistent://public/default/orders-eu-partition-3")
  True

Bounds: PATTERN_CHARS_MAX, ENGINE_BYTES_MAX for its states; between names, other tasks run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import google_crc32c
import re2

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.partition_names import base_topic

PATTERN_CHARS_MAX = 1000
ENGINE_BYTES_MAX = 64 * 1024
# Other tasks run after this time.
_SLICE_S = 0.002
_DOMAINS = ("non-persistent://", "persistent://")


class Pattern:
    """A compiled pattern. Created by of()."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    @classmethod
    def of(cls, pattern: str) -> Pattern:
        """Raises InvalidRequest."""
        if len(pattern) > PATTERN_CHARS_MAX:
            raise InvalidRequest(
                f"The pattern has {len(pattern)} characters; the maximum is {PATTERN_CHARS_MAX}."
            )
        for domain in _DOMAINS:
            pattern = pattern.replace(domain, "", 1)
        options = re2.Options()
        options.max_mem, options.log_errors = ENGINE_BYTES_MAX, False
        try:
            return cls(re2.compile(pattern, options))  # type: ignore[no-untyped-call]
        except re2.error as error:
            why = error.args[0].decode(errors="replace") if error.args else "not valid"
            raise InvalidRequest(
                f"The pattern {pattern[:200]!r} is not supported: {why}."
            ) from error

    def matches(self, name: str) -> bool:
        """Returns whether the pattern matches the full name of a topic or partition."""
        return self._compiled.fullmatch(base_topic(name).partition("://")[2]) is not None

    async def matching(self, names: Iterable[str]) -> list[str]:
        matches, began_s = list[str](), time.monotonic()
        for name in names:
            if self.matches(name):
                matches.append(name)
            if time.monotonic() - began_s > _SLICE_S:
                await asyncio.sleep(0)
                began_s = time.monotonic()
        return matches


def hash_of(names: Iterable[str]) -> str:
    """Returns the hash by which clients compare lists of topics.

    >>> hash_of(["persistent://public/default/a"])
    'e4a876e3'
    """
    joined = ",".join(sorted(names)).encode()
    return int(google_crc32c.value(joined)).to_bytes(4, "little").hex()
