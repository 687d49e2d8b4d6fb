"""Validates topic names by Kafka's rules: names are words in its files, and names of folders.

    >>> check_topic_name("orders.eu_2")
    >>> check_topic_name("orders eu")
    Traceback (most recent call last):
        ...
    ledgerfold.storage.errors.KafkaError: Topic name is invalid: 'orders eu' contains one or more \
characters other than ASCII alphanumerics, '.', '_' and '-'

Source: `org.apache.kafka.common.internals.Topic` of Kafka 4.1.
"""

from __future__ import annotations

import re

from ledgerfold.storage.errors import KafkaError, KafkaErrorKind

_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises KafkaError (INVALID_TOPIC_EXCEPTION) if a name is not valid."""
    if name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > _LENGTH_MAX:
        why = f"the length of '{name}' is longer than the max allowed length {_LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        why = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    else:
        return
    raise KafkaError(KafkaErrorKind.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")
