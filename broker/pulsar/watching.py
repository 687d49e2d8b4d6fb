"""Watchers of lists of topics: WATCH_TOPIC_LIST, WATCH_TOPIC_UPDATE, WATCH_TOPIC_LIST_CLOSE.

A client that subscribes to a pattern learns which topics appear and disappear, instead of asking
for the list again and again (PIP-145).

Bounds: WATCHERS_MAX for each connection. A watcher keeps the names that match; what changed while
its client reads nothing is at most CHANGES_MAX names, then the list is compared as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ledgerfold.broker.common.names import namespace_of, parse_namespace
from ledgerfold.broker.pulsar.frames import command
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.patterns import Pattern, hash_of
from ledgerfold.storage.errors import NotAllowed, Overloaded
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandWatchTopicList

WATCHERS_MAX = 100
CHANGES_MAX = 1000
# Of one update.
_NAMES_MAX = 1000


class Watching:
    """The watchers of one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._watchers: dict[int, TopicListWatcher] = {}

    async def watch(self, request: BaseCommand) -> None:
        """Creates a watcher. Raises InvalidRequest, NotAllowed, Overloaded."""
        asked = request.watch_topic_list
        if asked.watcher_id in self._watchers:
            raise NotAllowed(f"Watcher {asked.watcher_id} exists on this connection.")
        if len(self._watchers) >= WATCHERS_MAX:
            raise Overloaded(f"{WATCHERS_MAX} watchers on one connection.")
        watcher = TopicListWatcher(self._link, asked)
        self._watchers[asked.watcher_id] = watcher
        watcher.task = self._link.spawn(watcher.run())

    async def close(self, request: BaseCommand) -> None:
        closing = request.watch_topic_list_close
        watcher = self._watchers.pop(closing.watcher_id, None)
        if watcher is not None:
            watcher.close()
        answer = pulsar_pb2.CommandSuccess(request_id=closing.request_id)
        self._link.send(command(pulsar_pb2.SUCCESS, success=answer))

    def closed(self) -> None:
        """Ends all watchers: the connection is lost."""
        for watcher in self._watchers.values():
            watcher.close()
        self._watchers.clear()


class TopicListWatcher:
    """A watcher, and the names of which its client knows. Raises InvalidRequest."""

    def __init__(self, link: Link, asked: CommandWatchTopicList) -> None:
        self._link, self._asked = link, asked
        self._namespace = parse_namespace(asked.namespace)
        self._pattern = Pattern.of(asked.topics_pattern)
        self._known: set[str] = set()
        # Names that appeared or disappeared; None: too many of them.
        self._changes: dict[str, bool] | None = {}
        self._changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        link.broker.names.watchers.add(self._note)

    def close(self) -> None:
        self._link.broker.names.watchers.discard(self._note)
        if self.task is not None:
            self.task.cancel()

    def _note(self, name: str, exists: bool) -> None:
        if namespace_of(name) != self._namespace:
            return
        if self._changes is not None:
            self._changes[name] = exists
            if len(self._changes) > CHANGES_MAX:
                self._changes = None
        self._changed.set()

    async def run(self) -> None:
        """Sends the list, then what changes."""
        self._known = await self._matching()
        hash_ = hash_of(self._known)
        answer = pulsar_pb2.CommandWatchTopicListSuccess(
            request_id=self._asked.request_id,
            watcher_id=self._asked.watcher_id,
            topic=() if hash_ == self._asked.topics_hash else sorted(self._known),
            topics_hash=hash_,
        )
        type_ = pulsar_pb2.WATCH_TOPIC_LIST_SUCCESS
        self._link.send(command(type_, watch_topic_list_success=answer))
        while True:
            await self._changed.wait()
            await self._link.writable()
            self._changed.clear()
            await self._send_changes()

    async def _matching(self) -> set[str]:
        return set(await self._pattern.matching(self._link.broker.names.listed(self._namespace)))

    async def _send_changes(self) -> None:
        changes, self._changes = self._changes, {}
        if changes is None:
            known = await self._matching()
        else:
            matching = await self._pattern.matching(changes)
            known = self._known.difference(each for each in matching if not changes[each])
            known.update(each for each in matching if changes[each])
        new, deleted = sorted(known - self._known), sorted(self._known - known)
        self._known = known
        hash_ = hash_of(known) if new or deleted else ""
        for start in range(0, len(deleted), _NAMES_MAX):
            self._update(hash_, deleted=deleted[start : start + _NAMES_MAX])
        for start in range(0, len(new), _NAMES_MAX):
            self._update(hash_, new=new[start : start + _NAMES_MAX])

    def _update(self, hash_: str, new: Sequence[str] = (), deleted: Sequence[str] = ()) -> None:
        update = pulsar_pb2.CommandWatchTopicUpdate(
            watcher_id=self._asked.watcher_id,
            new_topics=new,
            deleted_topics=deleted,
            topics_hash=hash_,
        )
        type_ = pulsar_pb2.WATCH_TOPIC_UPDATE
        self._link.send(command(type_, watch_topic_update=update))
