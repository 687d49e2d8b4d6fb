"""The target that is any other broker: a command that answers JSON lines.

A request is one line on its standard input, {"op": ..., field: ...}; the answer is one line on its
standard output, {"ok": true, ...}, or {"ok": false, "error": NAME, "message": TEXT} with "http"
where there is a status. The table of operations is in docs/CASES.md; one that the command does not
know is refused with a message that begins with "unknown op".

What is answered here, without the command: the profile, which is what the broker is, and time,
which passes by itself. `E0.0` may come as `E0` in a last id (Pulsar's client cannot tell): mended
here.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
import time
from typing import Any

from tests.cases.protocol import Refused, Unsupported

# For time that passes by itself; a case that lets days pass is for a broker with a clock.
_WAIT_MS_MAX = 5_000
# What is published before a mark and after it differs by this at least.
_MARK_MS = 20
_END_TIMEOUT_S = 20
# A cursor moves a moment after its compaction says that it has ended.
_SETTLE_MS = 300
Answer = dict[str, Any]


class OracleTarget:
    """Starts the command; ends it when closed."""

    profile = "pulsar-4"
    quiet_ms = 1_000

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._batched: set[tuple[int, int]] = set()

    def ask(self, operation: str, /, **fields: Any) -> Answer:
        """Raises Refused, Unsupported."""
        match operation:
            case "profile":
                if fields["profile"] != self.profile:
                    raise Unsupported(f"This is {self.profile}.")
                return {}
            case "advance":
                return _wait(fields["ms"])
            case "trim":
                _wait(_SETTLE_MS)
            case "mark":
                _wait(_MARK_MS)
                now_ms = time.time_ns() // 1_000_000
                _wait(_MARK_MS)
                return {"ms": now_ms}
        return self._mended(operation, self._send({"op": operation, **fields}))

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(_END_TIMEOUT_S)

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
            raise Unsupported(message)
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


def _wait(ms: int) -> Answer:
    if ms > _WAIT_MS_MAX:
        raise Unsupported(f"Time passes by itself here, and {ms / 1000:g} s of it are too long.")
    threading.Event().wait(ms / 1000)
    return {}
