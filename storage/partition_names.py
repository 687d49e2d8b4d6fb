"""The names of partitions, which are Pulsar's: `<topic>-partition-<index>`.

>>> partition_name("orders", 2), parse_partition("orders-partition-2")
('orders-partition-2', Partition(topic='orders', index=2))
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PARTITION_SUFFIX = "-partition-"
# No sign and no leading zeros: each partition has one name.
_PARTITION = re.compile(rf"(.*){PARTITION_SUFFIX}(0|[1-9][0-9]{{0,8}})", re.ASCII)


# Numbers of more digits.
_BEYOND = re.compile(rf".*{PARTITION_SUFFIX}[1-9][0-9]{{9,17}}", re.ASCII)
# A number as Java reads it.
_NUMBER = re.compile("[+-]?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, as its name identifies it: its topic, and its index."""

    topic: str
    index: int


def partition_name(topic: str, index: int) -> str:
    return f"{topic}{PARTITION_SUFFIX}{index}"


def parse_partition(name: str) -> Partition | None:
    """Returns the partition that the name denotes, existing or not; None if it is not a partition's
    name.
    """
    match = _PARTITION.fullmatch(name)
    return None if match is None else Partition(match[1], int(match[2]))


def reserved_parent(name: str) -> str | None:
    """Returns the partitioned topic without which Pulsar creates no topic of this full name; None
    if there is none.

    >>> reserved_parent("persistent://a/b/orders-partition-01")
    'persistent://a/b/orders'
    """
    namespace, slash, local = name.rpartition("/")
    parent, _, number = local.partition(PARTITION_SUFFIX)
    return f"{namespace}{slash}{parent}" if _NUMBER.fullmatch(number) else None


def is_beyond_all_partitions(name: str) -> bool:
    """Returns whether the name ends like a partition's, with a number that no partition has.

    >>> is_beyond_all_partitions("orders-partition-99999999999")
    True
    """
    return _BEYOND.fullmatch(name) is not None


def partition_index(name: str) -> int:
    """Returns the index as in message ids: -1 if the name is not a partition's."""
    partition = parse_partition(name)
    return -1 if partition is None else partition.index


def base_topic(name: str) -> str:
    """Returns the partitioned topic of a partition's name; other names as they are."""
    partition = parse_partition(name)
    return name if partition is None else partition.topic
