"""Checks that a committed view equals the model's result, published in one write.

The part of the oracle (tests/simulation/oracle.py) that gets each commit of a compaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.segment import live_messages
from ledgerfold.strategies.catalogue import DEFAULT
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    LedgerRecord,
    RunRecord,
    TopicRecord,
)
from tests.model.choice_model import is_strategic, left_by
from tests.simulation.life import Topic, position_of, short_name
from tests.simulation.storedlog import Row, difference, live_rows, numbered_anew, rows_of
from tests.simulation.told import Told


class CommittedChecks(Told):
    """Compares each new view with the model (tests/model)."""

    def _on_commit(
        self, topic: Topic, record: TopicRecord, puts: Mapping[bytes, bytes], store: MemoryKeyValue
    ) -> None:
        """(d), (i), (j): the new view is the model's result, published in one write."""
        compacted, horizon = record.compacted, position_of(record.compacted.horizon)
        self.note(
            f"{short_name(topic.name)}: run {compacted.run_number} commits, horizon {horizon}"
        )
        run = puts.get(f"run/{topic.name}\0{compacted.run_number:020d}".encode())
        ledger = puts.get(f"ledger/{compacted.ledger_id:020d}".encode())
        if run is None or ledger is None:
            self.fail(f"the commit of run {compacted.run_number} is not one write")
            return
        previous = topic.record.compacted
        if topic.record.HasField("compacted"):
            old = puts.get(f"ledger/{previous.ledger_id:020d}".encode())
            is_old = store.get(f"ledger/{previous.ledger_id:020d}".encode()) is not None
            if is_old and (
                old is None or LedgerRecord.FromString(old[1:]).state != LEDGER_STATE_DELETING
            ):
                self.fail(
                    f"the commit of run {compacted.run_number} leaves ledger {previous.ledger_id}"
                )
            if previous.run_number >= compacted.run_number:
                self.fail(f"run {compacted.run_number} commits after run {previous.run_number}")
        done = RunRecord.FromString(run[1:])
        rows = self._expected(topic, horizon, done)
        segments = LedgerRecord.FromString(ledger[1:]).segments
        stored = self.entries(compacted.ledger_id).values()
        found = live_rows(self._disk, self._ledgers, stored, segments, self.is_damaged)
        messages = sum(map(live_messages, segments))
        if self.is_damaged and len(found) != messages:
            # It was verified, and damaged since.
            found = rows
        # Whether it includes entries that now count as torn is unknown.
        torn = {row.key for at in topic.excused if at in topic.at for row in topic.at[at].rows}
        rows = [row for row in rows if row.key not in torn]
        shown = [row for row in found if row.key not in torn]
        if shown != rows:
            self.fail(
                f"the view of run {compacted.run_number} at {horizon} is not strategy(log): "
                f"{difference(rows, shown)} (d)"
            )
        topic.rows, topic.horizon, topic.floors = found, horizon, [topic.floor]
        topic.furthest = max(horizon, topic.furthest or horizon)
        if done.strategy != DEFAULT:
            topic.leave_out()

    def _expected(self, topic: Topic, horizon: Position, run: RunRecord) -> list[Row]:
        self.learn(topic)
        after = topic.horizon or EARLIEST
        raw = {
            position: rows_of(entry)
            for ledger_id in topic.record.ledger_ids
            for position, entry in self.entries(ledger_id).items()
            if after < position <= horizon
        }
        for position, attempt in topic.at.items():
            is_due = after < position <= horizon and not topic.is_gone(position)
            if is_due and position not in raw:
                # Damaged: the run may have read it before.
                raw[position] = attempt.rows_at(position)
                if not self.is_damaged:
                    self.fail(f"the horizon passes {attempt} at {position}, which cannot be read")
        floor = position_of(run.retention_floor) if run.HasField("retention_floor") else EARLIEST
        if floor not in topic.floors:
            floors = ", ".join(map(str, topic.floors))
            self.fail(f"run {run.number} went by the floor {floor}, not by one of {floors}")
        held = [row for row in topic.rows if row.position >= floor]
        rows = [*held, *(row for _, each in sorted(raw.items()) for row in each)]
        plan = CompactionPlan(
            strategy=run.strategy,
            strategy_settings=run.strategy_settings,
            retain_null_key=run.retain_null_key,
            time_ms=run.plan_time_ms,
        )
        left = left_by(plan, [(row, row.message) for row in rows])
        expected = [rows[index] for index in left.rows]
        is_anew = self.profile == "pulsar-4" and is_strategic(plan)
        return numbered_anew(expected) if is_anew else expected
