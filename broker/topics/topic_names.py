"""The names of a broker's topics, and the watchers that are notified when one appears or
disappears.

>>> from ledgerfold.storage.key_value import MemoryKeyValue
>>> from ledgerfold.v1.records_pb2 import TopicRecord
>>> metadata = MetadataStore(MemoryKeyValue())
>>> names = TopicNames(metadata)
>>> names.watchers.add(lambda name, exists: print(name, exists))
>>> with names.announced(["persistent://public/default/t"]), metadata.batch() as batch:
...     batch.put(TopicRecord(name="persistent://public/default/t"))
persistent://public/default/t True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ledgerfold.broker.common.given_names import check_namespace, is_stand_in, shown_topic
from ledgerfold.broker.common.names import (
    NON_PERSISTENT,
    PERSISTENT,
    namespace_of,
    parse_namespace,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.partition_names import base_topic

# Called with a display name, and whether the topic exists now.
Watcher = Callable[[str, bool], None]


class TopicNames:
    """The names of topics of both kinds, including partitions, but not partitioned topics."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self.watchers: set[Watcher] = set()

    def listed(self, namespace: str = "") -> list[str]:
        """Returns sorted display names, those of all namespaces if `namespace` is empty."""
        if _is_stored_as_shown(namespace):
            domains = (NON_PERSISTENT, PERSISTENT)
            prefixes = [f"{domain}://{namespace}/" for domain in domains]
            return [name for each in prefixes for name in self._metadata.topic_names(each)]
        names = sorted(map(shown_topic, self._metadata.topic_names()))
        return [name for name in names if not namespace or namespace_of(name) == namespace]

    @contextmanager
    def announced(self, names: Sequence[str]) -> Iterator[None]:
        """Notifies watchers of the topics that were created in the block, even if it failed
        later.
        """
        new = [each for each in names if self._metadata.topic(each) is None]
        try:
            yield
        finally:
            created = [each for each in new if self._metadata.topic(each) is not None]
            self._notify(created, exists=True)

    def created(self, names: Sequence[str]) -> None:
        """Notifies watchers of topics that were created by other means."""
        self._notify(names, exists=True)

    def deleted(self, name: str) -> None:
        self._notify([name], exists=False)

    def _notify(self, names: Sequence[str], *, exists: bool) -> None:
        if self.watchers:
            for name in map(shown_topic, names):
                for watcher in tuple(self.watchers):
                    watcher(name, exists)


def _is_stored_as_shown(namespace: str) -> bool:
    """Returns whether no name of another namespace is displayed as one of this namespace."""
    try:
        check_namespace(parse_namespace(namespace))
    except InvalidRequest:
        return False
    return not is_stand_in(f"{namespace}/")


def check_records(store: LedgerStore, *names: str) -> None:
    """Raises MetadataLost for topics with lost records, and for their partitioned topics.

    They are not loaded, created or deleted: reads would silently stop before the first entry
    without a record, and new entries would be stored next to the lost ones (storage/losses.py).
    """
    for name, error in store.unrecorded.items():
        if name in names or base_topic(name) in names:
            raise error
