"""Lists of topics that match a pattern; each is updated once for all of its watchers.

A list reads the names of its namespace when its first watcher arrives, and follows changes until
the last one leaves. It applies a change in place, and computes one hash for all watchers.

Bounds: one sorted list of names for each watched pattern; all lists share the strings. Between
watchers, other tasks run.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TypeAlias

from ledgerfold.broker.common.names import namespace_of
from ledgerfold.broker.pulsar.patterns import Pattern, hash_of
from ledgerfold.broker.topics.broker import Broker

Key = tuple[str, str]
# The number of changes and watchers in one step.
_NOTES_MAX = 1000


# Called with each change of a list, in the same step: a name, and whether the topic exists now.
Note: TypeAlias = Callable[[str, bool], None]


class TopicList:
    """The topics of a namespace that match a pattern. `names` are sorted."""

    def __init__(self, broker: Broker, namespace: str, pattern: Pattern) -> None:
        self._broker, self._namespace, self._pattern = broker, namespace, pattern
        self.names: list[str] = []
        self.followers: set[Note] = set()
        # Changes that are not in the list yet: for each name, whether the topic exists.
        self._changes: dict[str, bool] = {}
        self._changed = asyncio.Event()
        self._hash: str | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Before the names are read, so that no change is missed.
        broker.names.watchers.add(self._note)
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def hash(self) -> str:
        if self._hash is None:
            self._hash = hash_of(self.names)
        return self._hash

    async def ready(self) -> None:
        """Returns when the names have been read."""
        await asyncio.shield(self._ready)

    def close(self) -> None:
        """Ends the list: it has no watcher."""
        self._broker.names.watchers.discard(self._note)
        self._task.cancel()
        self._ready.cancel()

    def _note(self, name: str, exists: bool) -> None:
        if namespace_of(name) == self._namespace:
            self._changes[name] = exists
            self._changed.set()

    async def _run(self) -> None:
        try:
            broker, namespace = self._broker, self._namespace
            names = await broker.in_thread(lambda: broker.names.listed(namespace))
            self.names = [sys.intern(each) for each in await self._pattern.matching(names)]
        except Exception as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        while True:
            await self._changed.wait()
            self._changed.clear()
            changes, self._changes = self._changes, {}
            matching = await self._pattern.matching(changes)
            while matching:
                count = max(1, _NOTES_MAX // (1 + len(self.followers)))
                self._apply({each: changes[each] for each in matching[:count]})
                del matching[:count]
                await asyncio.sleep(0)

    def _apply(self, changes: Mapping[str, bool]) -> None:
        """Applies changes to the list and notifies all watchers, in one step."""
        for name, exists in changes.items():
            at = bisect_left(self.names, name)
            is_listed = at < len(self.names) and self.names[at] == name
            if exists == is_listed:
                continue
            if exists:
                self.names.insert(at, sys.intern(name))
            else:
                del self.names[at]
            self._hash = None
            for note in self.followers:
                note(name, exists)


class TopicLists:
    """The watched lists of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lists: dict[Key, TopicList] = {}

    def follow(self, namespace: str, pattern: str, note: Note) -> TopicList:
        """Returns the list, and passes its changes to `note`. Raises InvalidRequest."""
        key = namespace, pattern
        topic_list = self._lists.get(key)
        if topic_list is None:
            topic_list = TopicList(self._broker, namespace, Pattern.of(pattern))
            self._lists[key] = topic_list
        topic_list.followers.add(note)
        return topic_list

    def leave(self, namespace: str, pattern: str, note: Note) -> None:
        """Stops passing changes to `note`, and ends the list if it has no other follower."""
        key = namespace, pattern
        topic_list = self._lists.get(key)
        if topic_list is not None:
            topic_list.followers.discard(note)
            if not topic_list.followers:
                del self._lists[key]
                topic_list.close()

    def __len__(self) -> int:
        return len(self._lists)
