"""The target that is any other broker: a command that answers JSON lines.

A request is one line on its standard input, {"op": ..., field: ...}; the answer is one line on its
standard output, {"ok": true, ...}, or {"ok": false, "error": NAME, "message": TEXT} with "http"
where there is a status. The table of operations is in docs/CASES.md; an operation that the command
does not support is refused with a message that begins with "unknown op".

Pulsar has no strategy of a topic: the strategy that a case sets is sent with each run, which then
runs outside of the broker. So is the retention of null keys.

Answered here, without the command: the profile, which is the broker's, and time, which passes in
real time. `E0.0` may be returned as `E0` in a last id (Pulsar's client cannot distinguish them):
corrected here. So is a compaction of a partitioned topic, whose own name has no status in Pulsar:
it has ended when that of each partition has.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
import time
from typing import Any

from tests.cases.protocol import Refused, Unsupported

# The option of the caller that starts one.
OWN_ORDER: dict[str, Any] = {
    "choices": ("PUBLISHING", "EVENT_TIME"),
    "default": "PUBLISHING",
    "help": "of runs that the other broker makes itself; default PUBLISHING",
}
# For time that passes in real time; a case that advances days needs a manual clock.
_WAIT_MS_MAX = 5_000
# The minimum difference between the times of messages before a mark and after it.
_MARK_MS = 20
_END_TIMEOUT_S = 20
# A cursor moves a moment after its compaction has ended, or after an acknowledgement: Pulsar's
# client sends these together, every 100 ms.
_SETTLE_MS = 300
_POLL_MS = 50
# Strategies -> their names for `compact-outside`.
_ORDERS = {
    "publishing-order": "PUBLISHING",
    "event-time": "EVENT_TIME",
    "newest": "NEWEST",
    "numeric": "NUMERIC",
}
_RUN_TIMEOUT_S = 100
Answer = dict[str, Any]


class UnknownOperation(Unsupported):
    """The command does not support the operation."""


class OracleTarget:
    """Starts the command; ends it when closed. `own_order`: the order of the broker's own runs."""

    profile = "pulsar-4"
    quiet_ms = 1_000

    def __init__(self, command: str, own_order: str = "PUBLISHING") -> None:
        self._start(command)
        self._batched: set[tuple[int, int]] = set()
        self._partitions: dict[str, int] = {}
        self._own_order = own_order
        # By topic or namespace.
        self._orders: dict[str, str] = {}
        self._retains: dict[str, bool] = {}
        # Topics with a run outside, which the broker's stats do not include.
        self._compacted_outside: set[str] = set()

    def ask(self, operation: str, /, **fields: Any) -> Answer:
        """Raises Refused, Unsupported."""
        match operation:
            case "profile":
                if fields["profile"] != self.profile:
                    raise Unsupported(f"This is {self.profile}.")
                return {}
            case "advance":
                return _wait(fields["ms"])
            case "trim" | "unload":
                settle()
            case "create" | "grow" if fields.get("partitions"):
                self._partitions[fields["topic"]] = fields["partitions"]
            case "compact" if fields["topic"] in self._partitions:
                return self._compact_partitions(fields["topic"])
            case "compact" if self._wants(fields["topic"]):
                self._compact_outside(fields["topic"])
                return {"status": "SUCCESS", "lastError": ""}
            case "compact-outside":
                self._compact_outside(**fields)
                return {}
            case "strategy":
                self._set_strategy(**fields)
                return {}
            case "retain-null-key":
                self._retains[fields["namespace"]] = fields["retain"]
                return {}
            case "mark":
                _wait(_MARK_MS)
                now_ms = time.time_ns() // 1_000_000
                _wait(_MARK_MS)
                return {"ms": now_ms}
        answer = self._mended(operation, self._send({"op": operation, **fields}))
        if operation == "stats" and fields["topic"] in self._compacted_outside:
            answer["stats"]["compaction"] = None
        return answer

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self, command: str) -> None:
        self._process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _set_strategy(
        self,
        topic: str = "",
        namespace: str = "",
        order: str = "",
        settings: Answer | None = None,
        remove: bool = False,
    ) -> None:
        scope = topic or namespace
        if remove:
            self._orders.pop(scope, None)
        elif order in _ORDERS:
            self._orders[scope] = _ORDERS[order]
        else:
            raise Unsupported(f"There is no strategy {order}.")

    def _wants(self, topic: str) -> Answer:
        """Returns the settings of a run on this topic; empty if they are the broker's own."""
        namespace = topic.removeprefix("persistent://").rpartition("/")[0]
        order = self._orders.get(topic) or self._orders.get(namespace, "PUBLISHING")
        retains = self._retains.get(namespace, False)
        is_own = order == self._own_order and not retains
        return {} if is_own else {"order": order, "retainNullKey": retains}

    def _compact_outside(self, topic: str, order: str | None = None) -> None:
        self._compacted_outside.add(topic)
        wants = self._wants(topic) | ({} if order is None else {"order": order})
        self._send({"op": "compact-outside", "topic": topic, "order": self._own_order, **wants})

    def _compact_partitions(self, topic: str) -> Answer:
        """Returns the first failure, or success."""
        self._send({"op": "trigger", "topic": topic})
        names = [f"{topic}-partition-{index}" for index in range(self._partitions[topic])]
        answers = [self._ended(name) for name in names]
        failures = [each for each in answers if each["status"] != "SUCCESS"]
        return (failures or answers)[0]

    def _ended(self, topic: str) -> Answer:
        end_s = time.monotonic() + _RUN_TIMEOUT_S
        while True:
            answer = self._send({"op": "compaction-status", "topic": topic})
            if answer["status"] != "RUNNING" or time.monotonic() > end_s:
                return answer
            _wait(_POLL_MS)

    def _send(self, request: dict[str, Any]) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise Unsupported(f"The command ended with {self._process.wait()}.")
        answer: Answer = json.loads(line)
        if answer["ok"]:
            return answer
        message = str(answer.get("message"))
        if message.startswith("unknown op"):
            raise UnknownOperation(message)
        codes = {str(answer[field]) for field in ("error", "http") if field in answer}
        raise Refused(message, frozenset(codes))

    def _mended(self, operation: str, answer: Answer) -> Answer:
        if operation == "produce":
            self._batched.update((at[0], at[1]) for at in answer["ids"] if at[2] >= 0)
        if operation == "last-id":
            at = answer["id"]
            if at[2] < 0 and (at[0], at[1]) in self._batched:
                at[2] = 0
        return answer


def settle() -> None:
    """Waits for acknowledgements that the other client sends together a moment later."""
    _wait(_SETTLE_MS)


def _wait(ms: int) -> Answer:
    if ms > _WAIT_MS_MAX:
        raise Unsupported(f"Time passes by itself here, and {ms / 1000:g} s of it are too long.")
    threading.Event().wait(ms / 1000)
    return {}
