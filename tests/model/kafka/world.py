"""Several logs, a cleaner and a clock, with the kafka-oracle's requests.

Every component that answers such requests is a subject of the differential test: this model, the
real cleaner, and the product's broker behind an adapter. An error is {"ok": False, "error": its
name}.

    >>> world = World()
    >>> _ = world.ask({"op": "create", "log": "t-0", "config": {"cleanup.policy": "compact"}})
    >>> world.ask({"op": "append", "log": "t-0", "records": [{"key": "a", "value": "1"}]})
    {'batches': [[0, 0]], 'ok': True}
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from tests.model.kafka.batches import Batch, Record, size_of
from tests.model.kafka.cleanable import Range
from tests.model.kafka.cleaner import DOCUMENTED, KAFKA, grouped
from tests.model.kafka.log import Clock, Log
from tests.model.kafka.manager import Manager
from tests.model.kafka.producers import Refused
from tests.model.kafka.records import batch_of, marker_of
from tests.model.kafka.settings import TopicSettings

Json = dict[str, Any]
_ENTRY_BYTES = 24
_DEFAULT_MAP_BYTES = 4 << 20
_LOAD_FACTOR = 0.9
# Until every new file has its second-last name, the old files are valid.
_UNFINISHED = ("writing", "renaming")
_RENAMED = ("renamed", "marking")


class World:
    """`sizer` returns the size of a batch of that log; without it nothing may be compressed."""

    # Each log is opened, and ends, separately.
    is_one_process = False
    leaves_out = ()
    now_ms = None

    def __init__(
        self, profile: str = KAFKA, sizer: Callable[[str, Batch], int] | None = None
    ) -> None:
        self._profile = profile
        self._sizer = sizer or (lambda _, batch: size_of(batch))
        self._reset({})

    def ask(self, request: Mapping[str, Any]) -> Json:
        handler = getattr(self, "_" + request["op"].replace("-", "_"))
        try:
            if self._is_unknown(request):
                raise Refused("IllegalArgumentException")
            answer = {**(handler(request) or {}), "ok": True}
        except Refused as refusal:
            answer = {"ok": False, "error": refusal.kind}
        for log in self.logs.values():
            log.expire()
        return answer

    def _log(self, request: Mapping[str, Any]) -> Log:
        log: Log = self.logs[request["log"]]
        return log

    def _is_unknown(self, request: Mapping[str, Any]) -> bool:
        made = ("create", "checkpoint-set")
        return "log" in request and request["op"] not in made and request["log"] not in self.logs

    # The world

    def _reset(self, request: Mapping[str, Any]) -> None:
        self.clock = Clock(request.get("clock", 0))
        self._expiration_ms = request.get("producerIdExpirationMs", 86_400_000)
        self.logs: dict[str, Log] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self.manager = Manager(self.logs, 0, self._profile)
        self._cleaner(request)

    def _clock(self, request: Mapping[str, Any]) -> Json:
        advanced = self.clock.now_ms + request.get("advance", 0)
        self.clock.now_ms = request.get("set", advanced)
        return {"now": self.clock.now_ms}

    def _cleaner(self, request: Mapping[str, Any]) -> Json:
        keys = request.get("keys")
        if keys is None:
            share = request.get("dedupeBufferBytes", _DEFAULT_MAP_BYTES) // request.get(
                "threads", 1
            )
            self._slots = share // _ENTRY_BYTES
            keys = int(self._slots * request.get("loadFactor", _LOAD_FACTOR))
        else:
            self._slots = 2 * keys
        self.manager.limit = keys
        return {"slots": self._slots}

    def _create(self, request: Mapping[str, Any]) -> None:
        name, config = request["log"], dict(request.get("config") or {})
        self._configs[name] = config
        self.logs[name] = Log(
            TopicSettings.of(config),
            self.clock,
            start=request.get("start", 0),
            expiration_ms=self._expiration_ms,
            keeps_resends=self._profile == DOCUMENTED,
            sizer=lambda batch: self._sizer(name, batch),
        )

    def _config(self, request: Mapping[str, Any]) -> None:
        name = request["log"]
        merged = {**self._configs[name], **request["config"]}
        self._configs[name] = {key: text for key, text in merged.items() if text is not None}
        log = self.logs[name]
        was_compact = log.settings.compact
        log.settings = TopicSettings.of(self._configs[name])
        if was_compact and not log.settings.compact:
            self._abort(request)

    def _delete(self, request: Mapping[str, Any]) -> None:
        del self.logs[request["log"]]
        self.manager.forget_unknown()
        self.manager.uncleanable &= set(self.logs)

    # A log

    def _append(self, request: Mapping[str, Any]) -> Json:
        log, at = self._log(request), request.get("at", -1)
        records = request["records"]
        done: list[list[int]] = []
        for some in [records] if request.get("batch") else [[record] for record in records]:
            batch = batch_of(request, some, self.clock.now_ms, at)
            if at < 0:
                span = log.append_as_leader(batch, request.get("origin", "client"))
            else:
                span = log.append_as_follower(batch)
                at = batch.next
            done.append(list(span))
        return {"batches": done}

    def _marker(self, request: Mapping[str, Any]) -> Json:
        marker = marker_of(request, self.clock.now_ms)
        return {"offset": self._log(request).append_as_leader(marker, "coordinator")[0]}

    def _roll(self, request: Mapping[str, Any]) -> None:
        log = self._log(request)
        log.roll()
        log.follow()

    def _high_watermark(self, request: Mapping[str, Any]) -> None:
        log = self._log(request)
        log.held = request.get("offset")
        log.follow()

    def _log_start(self, request: Mapping[str, Any]) -> Json:
        return {"moved": self._log(request).move_start(request["offset"])}

    def _truncate(self, request: Mapping[str, Any]) -> None:
        name, offset, log = request["log"], request["offset"], self._log(request)
        stops = offset < log.active.base
        if stops:
            self.manager.states.pause(name)
        log.truncate(offset)
        if stops:
            self.manager.truncate_checkpoint(name, log.active.base)
            self.manager.states.resume(name)

    def _reopen(self, request: Mapping[str, Any]) -> None:
        self._log(request).reopen(request.get("clean", True))

    def _modified(self, request: Mapping[str, Any]) -> None:
        for segment in self._log(request).segments:
            if segment.base == request["segment"]:
                segment.modified_ms = request["to"]

    def _delete_old(self, request: Mapping[str, Any]) -> Json:
        return {"deleted": self._log(request).delete_old()}

    # The cleaner

    def _plan(self, request: Mapping[str, Any]) -> Json:
        found = self.manager.plan(request["log"], request.get("checkpoint"))
        return {
            **_described(request["log"], found),
            "firstUncleanable": found.first_uncleanable,
            "repair": found.repair,
            "delayMs": found.delay_ms,
        }

    def _clean(self, request: Mapping[str, Any]) -> Json:
        hooks = [dict(hook) for hook in request.get("during", ())]

        def during(phase: str) -> None:
            for hook in hooks:
                if hook["at"] == phase:
                    hook["at"] = "done"
                    for other in hook["ops"]:
                        self.ask(other)

        turn = self.manager.turn(request.get("preferred"), during)
        answer: Json = {"log": turn.log, "checkpoint": dict(self.manager.checkpoints)}
        if turn.log is None or turn.chosen is None:
            return answer
        answer |= _described(turn.log, turn.chosen)
        answer |= {"aborted": turn.aborted, "endOffset": turn.end_offset}
        if turn.failure:
            answer["failure"] = {"error": turn.failure}
        if turn.stats is None:
            return answer
        stats = turn.stats
        return {
            **answer,
            "stats": {
                "mapMessagesRead": stats.map_messages_read,
                "messagesRead": stats.messages_read,
                "messagesWritten": stats.messages_written,
                "invalidMessagesRead": stats.invalid_messages_read,
                "bytesRead": stats.bytes_read,
                "bytesWritten": stats.bytes_written,
                "mapUtilization": stats.map_size / self._slots,
            },
        }

    def _crash(self, request: Mapping[str, Any]) -> Json:
        """Runs a cleaning, then restores the files as a crash at that point leaves them, and
        reopens the log.
        """
        name, log = request["log"], self._log(request)
        before = deepcopy(log.segments)
        checkpoints = dict(self.manager.checkpoints)
        answer = self._clean(request)
        if answer["log"] != name:
            raise Refused("IllegalStateException")
        end = answer["endOffset"]
        old = [segment for segment in before if segment.base < end]
        new = [segment for segment in log.segments if segment.base < end]
        if request["point"] in _UNFINISHED:
            new = old
        elif request["point"] in _RENAMED:
            # All old files within the range of the new ones are deleted, with snapshots; an empty
            # segment after it stays.
            held = max((segment.next_offset for segment in new), default=0)
            log.producers.drop_snapshots_between(old[0].base, held)
            new += [segment for segment in old if segment.base >= held]
        log.segments = [*new, *(segment for segment in log.segments if segment.base >= end)]
        self.manager.checkpoints = checkpoints
        log.reopen(clean=False)
        return answer

    def _group(self, request: Mapping[str, Any]) -> Json:
        log = self._log(request)
        bound = request.get("bound", log.active.base)
        limits = request.get("bytes", 2**31 - 1), request.get("indexBytes", 2**31 - 1)
        groups = grouped([s for s in log.segments if s.base < bound], *limits, bound)
        return {"groups": [[s.base for s in group] for group in groups]}

    def _retention(self, request: Mapping[str, Any]) -> Json:
        return {"deleted": self.manager.retention()}

    def _pause(self, request: Mapping[str, Any]) -> None:
        self.manager.states.pause(request["log"])

    def _resume(self, request: Mapping[str, Any]) -> None:
        self.manager.states.resume(request["log"])

    def _abort(self, request: Mapping[str, Any]) -> None:
        self._pause(request)
        self._resume(request)

    def _state(self, request: Mapping[str, Any]) -> Json:
        return {"state": self.manager.states.of(request["log"])}

    def _state_set(self, request: Mapping[str, Any]) -> None:
        self.manager.states.by_log[request["log"]] = request["state"]

    def _done(self, request: Mapping[str, Any]) -> None:
        name = request["log"]
        if self.manager.states.done(name) and request["what"] == "cleaning":
            self.manager.write_checkpoint(name, request["offset"])

    def _uncleanable(self, request: Mapping[str, Any]) -> Json:
        if "log" in request:
            self.manager.uncleanable.add(request["log"])
        return {"logs": sorted(self.manager.uncleanable)}

    def _checkpoint(self, request: Mapping[str, Any]) -> Json:
        return {"offsets": dict(self.manager.checkpoints), "text": self.manager.text()}

    def _checkpoint_set(self, request: Mapping[str, Any]) -> None:
        self.manager.write_checkpoint(request["log"], request["offset"])

    def _checkpoint_truncate(self, request: Mapping[str, Any]) -> None:
        self.manager.truncate_checkpoint(request["log"], request["offset"])

    # Present state

    def _info(self, request: Mapping[str, Any]) -> Json:
        log = self._log(request)
        return {
            "start": log.start,
            "end": log.end,
            "highWatermark": log.high_watermark,
            "lastStable": log.stable,
            "active": log.active.base,
            "size": log.size,
        }

    def _segments(self, request: Mapping[str, Any]) -> Json:
        return {
            "segments": [
                {
                    "base": segment.base,
                    "size": segment.size,
                    "largestTimestamp": segment.largest_timestamp_ms(),
                    "modified": segment.modified_ms,
                    "offsetIndexBytes": segment.offset_index_bytes,
                    "timeIndexBytes": segment.time_index_bytes,
                }
                for segment in self._log(request).segments
            ]
        }

    def _batches(self, request: Mapping[str, Any]) -> Json:
        return {
            "batches": [
                {**_told(batch), "segment": segment.base}
                for segment in self._log(request).segments
                for batch in segment.batches
            ]
        }

    def _aborted(self, request: Mapping[str, Any]) -> Json:
        return {
            "transactions": [
                {"pid": txn.pid, "first": txn.first, "last": txn.last, "segment": segment.base}
                for segment in self._log(request).segments
                for txn in segment.aborted
            ]
        }

    def _producers(self, request: Mapping[str, Any]) -> Json:
        known = self._log(request).producers.known
        return {"lastSequences": {str(pid): entry.last_sequence for pid, entry in known.items()}}

    def _read(self, request: Mapping[str, Any]) -> Json:
        log = self._log(request)
        isolation = request.get("isolation", "uncommitted")
        found, following = log.read(request.get("offset", log.start), isolation)
        return {"records": [_record(b, r) for b, r in found], "next": following}


def _described(name: str, found: Range) -> Json:
    return {
        "log": name,
        "firstDirty": found.first_dirty,
        "bound": found.bound,
        "cleanBytes": found.clean_bytes,
        "cleanableBytes": found.cleanable_bytes,
        "overdue": found.is_overdue,
        "ratio": found.ratio,
    }


def _told(batch: Batch) -> Json:
    answer: Json = {
        "base": batch.base,
        "last": batch.last,
        "magic": 2,
        "size": batch.size,
        "maxTimestamp": batch.max_timestamp,
        "timestampType": batch.timestamp_type,
        "codec": batch.codec,
        "transactional": batch.transactional,
        "control": batch.control,
        "horizon": batch.horizon,
        "token": batch.token,
        "records": [_record(batch, record) for record in batch.records],
    }
    if batch.has_producer:
        answer |= {"pid": batch.pid, "epoch": batch.epoch}
        answer |= {"baseSequence": batch.base_sequence, "lastSequence": batch.last_sequence}
    if batch.control and batch.records:
        answer["marker"] = batch.marker
    return answer


def _record(batch: Batch, record: Record) -> Json:
    return {
        "offset": record.offset,
        "timestamp": batch.timestamp_of(record),
        **_text("key", record.key),
        **_text("value", record.value),
    }


def _text(name: str, field: bytes | None) -> Json:
    if field is None:
        return {name: None}
    try:
        return {name: field.decode()}
    except UnicodeDecodeError:
        return {f"{name}B64": base64.b64encode(field).decode()}
