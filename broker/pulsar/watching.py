"""Watchers of lists of topics: WATCH_TOPIC_LIST, WATCH_TOPIC_UPDATE, WATCH_TOPIC_LIST_CLOSE.

A client that subscribes to a pattern is notified of topics that appear and disappear, instead of
requesting the list periodically (PIP-145).

Bounds: WATCHERS_MAX for each connection; each counts as a stream. Watchers of the same pattern
share one list (topic_lists.py). While its client does not read, a watcher keeps only the
difference: names that exist now or existed then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from ledgerfold.broker.common.names import parse_namespace
from ledgerfold.broker.pulsar.errors import error_answer
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.topic_lists import TopicLists
from ledgerfold.broker.security.guard import Target
from ledgerfold.broker.security.needs import Need
from ledgerfold.storage.errors import NotAllowed, Overloaded
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandWatchTopicList

WATCHERS_MAX = 100
# The maximum of one update.
_NAMES_MAX = 1000


class Watching:
    """The watchers of one connection."""

    def __init__(self, link: Link, lists: TopicLists) -> None:
        self._link, self._lists = link, lists
        self._watchers: dict[int, TopicListWatcher] = {}

    async def watch(self, request: BaseCommand) -> None:
        """Creates a watcher. Raises InvalidRequest, NotAllowed, Overloaded."""
        requested = request.watch_topic_list
        if requested.watcher_id in self._watchers:
            raise NotAllowed(f"This connection already has watcher {requested.watcher_id}.")
        if len(self._watchers) >= WATCHERS_MAX:
            raise Overloaded(f"This connection has {WATCHERS_MAX} watchers, the maximum.")
        watcher = TopicListWatcher(self._link, self._lists, requested)
        self._watchers[requested.watcher_id] = watcher
        watcher.task = self._link.spawn(self._run(requested.watcher_id, watcher))

    async def _run(self, watcher_id: int, watcher: TopicListWatcher) -> None:
        await watcher.run()
        # Its list was refused: the client may ask again.
        if self._watchers.get(watcher_id) is watcher:
            del self._watchers[watcher_id]

    async def close(self, request: BaseCommand) -> None:
        closing = request.watch_topic_list_close
        watcher = self._watchers.pop(closing.watcher_id, None)
        if watcher is not None:
            watcher.close()
        self._link.succeed(closing.request_id)

    def closed(self) -> None:
        """Ends all watchers: the connection is lost."""
        for watcher in self._watchers.values():
            watcher.close()
        self._watchers.clear()


class TopicListWatcher:
    """A watcher, with the changes of its list of which its client is not notified yet."""

    def __init__(self, link: Link, lists: TopicLists, requested: CommandWatchTopicList) -> None:
        """Raises InvalidRequest, Overloaded."""
        self._link, self._request = link, requested
        self._changes: dict[str, bool] = {}
        self._changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        namespace, pattern = parse_namespace(requested.namespace), requested.topics_pattern
        with ExitStack() as resources:
            resources.enter_context(link.broker.outgoing.stream())
            self._list = lists.follow(namespace, pattern, self.note)
            resources.callback(lists.leave, namespace, pattern, self.note)
            # There is no way to end one watcher: its client connects again, and is refused.
            target = Target.namespace_named(namespace)
            resources.enter_context(link.use(Need.LIST, target, lambda error: link.close()))
            self._resources = resources.pop_all()

    def close(self) -> None:
        self._resources.close()
        if self.task is not None:
            self.task.cancel()

    def note(self, name: str, exists: bool) -> None:
        """Notes a change of the list; a change that is undone is removed."""
        if self._changes.pop(name, None) is None:
            self._changes[name] = exists
        self._changed.set()

    async def run(self) -> None:
        """Sends the list, then its changes; ends if the list is too large for the client."""
        await self._list.ready()
        async with self._link.list_turn():
            self._changes.clear()
            try:
                self._send_list()
            except NotAllowed as error:
                self._link.send(error_answer(self._request.request_id, error))
                self._resources.close()
                return
        while True:
            await self._changed.wait()
            async with self._link.list_turn():
                self._changed.clear()
                self._send_changes()

    def _send_list(self) -> None:
        hash_ = self._list.hash
        answer = pulsar_pb2.CommandWatchTopicListSuccess(
            request_id=self._request.request_id,
            watcher_id=self._request.watcher_id,
            topic=() if hash_ == self._request.topics_hash else self._list.names,
            topics_hash=hash_,
        )
        self._link.send_list(answer)

    def _send_changes(self) -> None:
        changes, self._changes = self._changes, {}
        new = sorted(each for each in changes if changes[each])
        deleted = sorted(each for each in changes if not changes[each])
        hash_ = self._list.hash if changes else ""
        for start in range(0, len(deleted), _NAMES_MAX):
            self._update(hash_, deleted=deleted[start : start + _NAMES_MAX])
        for start in range(0, len(new), _NAMES_MAX):
            self._update(hash_, new=new[start : start + _NAMES_MAX])

    def _update(self, hash_: str, new: Sequence[str] = (), deleted: Sequence[str] = ()) -> None:
        update = pulsar_pb2.CommandWatchTopicUpdate(
            watcher_id=self._request.watcher_id,
            new_topics=new,
            deleted_topics=deleted,
            topics_hash=hash_,
        )
        self._link.send(update)
