"""One history on two subjects: the answers to each request, and the resulting logs.

After a pass, a deletion, a truncation and a reopening, logs are compared batch by batch; after
other requests, by their offsets. Bytes are compared by checksum if a subject reports it, otherwise
by identity: a batch that one subject keeps unchanged must have unchanged bytes on the other side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from tests.differential.kafka_generate import TURNS, Request, history, kind_of
from tests.differential.kafka_subject import Answer, Model, Subject

_LOOKED_AT = (*TURNS, "retention", "delete-old", "truncate", "reopen", "log-start")
# What a subject may omit of a batch, and what only one of them reports.
_BYTES = ("md5", "token")


class Difference(NamedTuple):
    """`what` differs after the request at this place of the history."""

    history: list[Request]
    at: int
    what: str
    ours: object
    theirs: object


class Duel:
    def __init__(self, ours: Subject, theirs: Subject) -> None:
        self._ours, self._theirs = ours, theirs
        self._logs: list[str] = []
        self._bytes: dict[tuple[str, object], object] = {}
        self._held: dict[str, int] = {}
        # Of each log, before the pass.
        self._before: dict[str, list[Answer]] = {}
        self._is_compressed = False

    @property
    def subject(self) -> str:
        return str(self._ours)

    @property
    def moves_on(self) -> bool:
        """True if no history can be repeated, because the time at which it begins has passed."""
        return self._ours.now_ms is not None

    @property
    def is_of_the_product(self) -> bool:
        return self._ours.is_one_process

    def against(self, theirs: Subject) -> Duel:
        """Returns the same subject, compared with another one."""
        return Duel(self._ours, theirs)

    def history(self, seed: int) -> list[Request]:
        return history(seed, leaves_out=self._ours.leaves_out, since_ms=self._ours.now_ms)

    def compare(self, requests: Sequence[Request]) -> Difference | None:
        self._logs, self._bytes, self._held = [], {}, {}
        self._is_compressed = any("codec" in str(request) for request in requests)
        self._both({"op": "reset"})
        for at, request in enumerate(requests):
            found = self._step(request, is_last=at == len(requests) - 1)
            if found:
                return Difference(list(requests), at, *found)
        return None

    def _step(self, request: Request, is_last: bool) -> tuple[str, object, object] | None:
        if request["op"] in TURNS or request["op"] in ("plan", "retention", "delete-old"):
            self._align()
        if request["op"] in TURNS and self._ours.is_one_process:
            self._before = {
                log: self._theirs.ask({"op": "batches", "log": log}).get("batches", [])
                for log in self._logs
            }
        if request["op"] == "high-watermark":
            self._hold(request["log"], request.get("offset"))
            return self._look(closely=False)
        if request["op"] == "crash":
            self._rule_out_deletion(request["log"])
        theirs = self._theirs.ask(request)
        if self._ours.is_one_process:
            self._end_together(request, theirs)
        self._learn()
        asked = dict(request)
        if request["op"] in TURNS:
            asked["preferred"] = theirs.get("log")
        ours = self._ours.ask(asked)
        if request["op"] == "create" and theirs["ok"]:
            self._logs.append(request["log"])
        self._keep_held(request)
        left, right = _in_common(_told(ours), _told(theirs))
        if self._has_guessed(left, right):
            for answer in (left, right):
                answer["stats"].pop("bytesWritten")
        if self._ours.is_one_process and "stats" in left:
            _forgive_map_messages(left, right, self._before.get(left["log"], []))
        if left != right:
            return ("answer", *_parts(left, right))
        return self._look(is_last or request["op"] in _LOOKED_AT)

    def _end_together(self, request: Request, theirs: Answer) -> None:
        """Ends all logs together: when a process dies, all its logs are reloaded, and a cleaning
        has its checkpoint.
        """
        if request["op"] == "reopen" and not request.get("clean", True):
            for log in self._logs:
                if log != request["log"]:
                    self._theirs.ask({**request, "log": log})
        if request["op"] == "crash" and theirs["ok"]:
            self._end_round(request["log"], theirs, is_over=request["point"] == "swapped")

    def _end_round(self, log: str, theirs: Answer, *, is_over: bool) -> None:
        """Their emulation of a crash resets the checkpoint to its value before the pass, which may
        have repaired it.
        """
        if is_over or log in self._theirs.ask({"op": "checkpoint"})["offsets"]:
            offset = theirs["endOffset" if is_over else "firstDirty"]
            self._theirs.ask({"op": "checkpoint-set", "log": log, "offset": offset})

    def _rule_out_deletion(self, log: str) -> None:
        """Excludes deletion: the state after a crash cannot be emulated for segments that a pass
        deletes after its cleaning.
        """
        self._both({"op": "config", "log": log, "config": {"cleanup.policy": "compact"}})
        self._both({"op": "delete-old", "log": log})

    def _hold(self, log: str, offset: int | None) -> None:
        """The high watermark is where a batch begins: a fetch moves Kafka's there."""
        request: Request = {"op": "high-watermark", "log": log}
        self._held.pop(log, None)
        if offset is not None:
            batches = self._theirs.ask({"op": "batches", "log": log}).get("batches", [])
            info = self._theirs.ask({"op": "info", "log": log})
            lowest = max(offset, info.get("start", 0))
            bases = [batch["base"] for batch in batches if batch["base"] >= lowest]
            self._held[log] = request["offset"] = bases[0] if bases else info.get("end", 0)
        self._both(request)

    def _keep_held(self, request: Request) -> None:
        """Keeps the offset valid: it may now be inside a batch, or between two."""
        for log, offset in list(self._held.items()):
            if request["op"] == "truncate" and request["log"] == log:
                self._hold(log, None)
            elif request["op"] in (*TURNS, "append", "marker", "log-start"):
                self._hold(log, offset)

    def _align(self) -> None:
        """Files have the machine's time on one side: it is replaced by the other side's."""
        for log in self._logs:
            ours, theirs = self._both({"op": "segments", "log": log})
            there = {segment["base"]: segment["modified"] for segment in theirs["segments"]}
            for segment in ours["segments"]:
                if there.get(segment["base"]) != segment["modified"]:
                    fields = {"segment": segment["base"], "to": segment["modified"]}
                    self._theirs.ask({"op": "modified", "log": log, **fields})

    def _both(self, request: Request) -> tuple[Answer, Answer]:
        return self._ours.ask(request), self._theirs.ask(request)

    def _learn(self) -> None:
        if isinstance(self._ours, Model) and self._is_compressed:
            for log in self._logs:
                answer = self._theirs.ask({"op": "batches", "log": log})
                self._ours.sizes.learn(log, answer.get("batches", []))

    def _has_guessed(self, ours: Answer, theirs: Answer) -> bool:
        """Returns whether a compressed batch was written, and deleted before its size was known."""
        guessed = isinstance(self._ours, Model) and self._ours.sizes.take_guesses() > 0
        return guessed and "stats" in ours and "stats" in theirs

    # What there is

    def _look(self, closely: bool) -> tuple[str, object, object] | None:
        for log in self._logs:
            looks = _looks(log, closely)
            for request in [each for each in looks if kind_of(each) not in self._ours.leaves_out]:
                ours, theirs = self._both(request)
                left, right = _comparable(ours, theirs)
                if left != right:
                    return (f"{request['op']} of {log}", *_parts(left, right))
                if request["op"] == "batches":
                    found = self._compare_bytes(log, ours["batches"], theirs["batches"])
                    if found:
                        return found
        if closely and self._logs:
            request = {"op": "checkpoint"}
            left, right = (answer["offsets"] for answer in self._both(request))
            if left != right:
                return "checkpoint", left, right
        return None

    def _compare_bytes(
        self, log: str, ours: list[Answer], theirs: list[Answer]
    ) -> tuple[str, object, object] | None:
        for left, right in zip(ours, theirs, strict=True):
            here, there = left.get("md5"), right.get("md5")
            if "token" in left:
                here = self._bytes.setdefault((log, left["token"]), there or right["token"])
                there = there or right["token"]
            elif "token" in right:
                there = self._bytes.setdefault((log, right["token"]), here)
            if here != there:
                return f"bytes of the batch at {left['base']} of {log}", here, there
        return None


def _looks(log: str, closely: bool) -> list[Request]:
    looks: list[Request] = [{"op": "info", "log": log}]
    if closely:
        looks += [{"op": op, "log": log} for op in ("segments", "batches", "aborted", "producers")]
        looks += [
            {"op": "read", "log": log, "isolation": isolation}
            for isolation in ("uncommitted", "committed")
        ]
    return looks


def _comparable(ours: Answer, theirs: Answer) -> tuple[Answer, Answer]:
    if "segments" in ours:
        without_times = {
            segment["base"]
            for segment in theirs["segments"]
            if segment["largestTimestamp"] == segment["modified"]
        }
        left, right = (
            {"segments": [_segment(each, without_times) for each in answer["segments"]]}
            for answer in (ours, theirs)
        )
        return left, right
    if "batches" in ours:
        left, right = (
            {"batches": [_without(each, _BYTES) for each in answer["batches"]]}
            for answer in (ours, theirs)
        )
        return left, right
    return _in_common(_told(ours), _told(theirs))


def _in_common(ours: Answer, theirs: Answer) -> tuple[Answer, Answer]:
    """A process that died reports nothing of its last cleaning; a reader reports no place; a
    retention pass reports the number of deleted segments, but not their logs.
    """
    if ours == {"ok": True}:
        return ours, {"ok": theirs["ok"]}
    if isinstance(ours.get("deleted"), int) and isinstance(theirs.get("deleted"), dict):
        theirs = {**theirs, "deleted": sum(theirs["deleted"].values())}
    return ours, theirs if "next" in ours else _without(theirs, ("next",))


def _forgive_map_messages(ours: Answer, theirs: Answer, batches: Sequence[Answer]) -> None:
    """Kafka counts from the entry of the offset index before the first dirty offset: that includes
    some of the last complete batches before it in its segment. `batches`: before the cleaning.
    """
    first, name = ours.get("firstDirty", 0), "mapMessagesRead"
    segment = max((each["segment"] for each in batches if each["segment"] <= first), default=0)
    before = (
        1 if each["control"] else len(each["records"])
        for each in reversed(batches)
        if each["segment"] == segment and each["last"] < first
    )
    more = theirs.get("stats", {}).get(name, 0) - ours["stats"].get(name, 0)
    if more in accumulate(before, initial=0):
        for answer in (ours, theirs):
            answer.get("stats", {}).pop(name, None)


def _segment(segment: Answer, without_times: set[int]) -> Answer:
    """Returns a segment. Its largest timestamp is its file's if no record has one."""
    names = ("base", "size", "offsetIndexBytes", "timeIndexBytes")
    told = {name: segment[name] for name in names}
    if segment["base"] not in without_times:
        told["largestTimestamp"] = segment["largestTimestamp"]
    return told


def _told(answer: Answer) -> Answer:
    """Returns an error as its name; omits parts that only one side reports."""
    if not answer["ok"]:
        return {"ok": False, "error": answer["error"]}
    told = _without(answer, ("text", "offline", "left", "during"))
    if "failure" in told:
        told["failure"] = told["failure"]["error"]
    if "stats" in told:
        told["stats"] = {**told["stats"], "mapUtilization": round(_used(told["stats"]), 12)}
    return told


def _used(stats: Mapping[str, Any]) -> float:
    return float(stats["mapUtilization"])


def _without(answer: Answer, names: Sequence[str]) -> Answer:
    return {name: told for name, told in answer.items() if name not in names}


def _parts(left: object, right: object) -> tuple[object, object]:
    """Returns the first parts that differ, with their places."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted({*left, *right}, key=str):
            mine, others = left.get(name, "nothing"), right.get(name, "nothing")
            if mine != others:
                found = _parts(mine, others)
                return {name: found[0]}, {name: found[1]}
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for at, (mine, others) in enumerate(zip(left, right, strict=True)):
            if mine != others:
                found = _parts(mine, others)
                return {at: found[0]}, {at: found[1]}
    return left, right
