"""Logs for tests in the shorthand of the rules: `0:A=a0 1:B=∅ | [2:c=1 3:=keyless] |* 4:D=1`.

`|` rolls, a star marks the start of the active segment, `∅` is a null value, `{}` no record left.

    >>> bench = Bench()
    >>> bench.write("0:A=a0 1:A=a1 |*")
    >>> bench.turn()["checkpoint"], bench.left()
    ({'t-0': 2}, '1:A=a1')
"""

from __future__ import annotations

import re
from typing import Any

from tests.model.kafka.cleaner import KAFKA
from tests.model.kafka.world import World

_LOG = "t-0"


class Bench:
    """A compacted log that is always dirty enough."""

    def __init__(self, profile: str = KAFKA, keys: int | None = None, **config: Any) -> None:
        self.world = World(profile)
        if keys is not None:
            self.world.ask({"op": "cleaner", "keys": keys})
        names = {name.replace("_", "."): str(value) for name, value in config.items()}
        defaults = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        self.ask("create", log=_LOG, config={**defaults, **names})

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        answer = self.world.ask({"op": op, "log": _LOG, **fields})
        assert answer["ok"], answer
        return answer

    def write(self, text: str, **fields: Any) -> None:
        for batch in re.findall(r"\[[^]]*\]|\S+", text):
            if batch.startswith("|"):
                self.ask("roll")
                continue
            records = [_record(each) for each in batch.strip("[]").split()]
            answer = self.ask("append", records=records, batch=True, **fields)
            assert answer["batches"][0][0] == int(batch.strip("[").split(":")[0])

    def transact(self, text: str, pid: int, sequence: int) -> None:
        self.write(text, pid=pid, sequence=sequence, transactional=True)

    def end(self, pid: int, kind: str) -> int:
        offset: int = self.ask("marker", pid=pid, type=kind)["offset"]
        return offset

    def at(self, now_ms: int) -> None:
        self.ask("clock", set=now_ms)

    def turn(self) -> dict[str, Any]:
        return self.ask("clean")

    def batches(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.ask("batches")["batches"]
        return listed

    def left(self) -> str:
        """Returns the remaining batches in turn; those of several records in brackets."""
        return " ".join(_shown(batch) for batch in self.batches())

    def horizons(self) -> dict[int, int]:
        return {b["base"]: b["horizon"] for b in self.batches() if b["horizon"] is not None}


def _record(text: str) -> dict[str, Any]:
    _, _, rest = text.partition(":")
    key, _, value = rest.partition("=")
    return {"key": key or None, "value": None if value == "∅" else value}


def _shown(batch: dict[str, Any]) -> str:
    if not batch["records"]:
        return f"{batch['last']}:{{}}"
    if batch["control"]:
        return f"{batch['base']}:{batch['marker'].upper()}"
    records = " ".join(
        f"{r['offset']}:{r['key'] or ''}={'∅' if r['value'] is None else r['value']}"
        for r in batch["records"]
    )
    return f"[{records}]" if len(batch["records"]) > 1 else records
