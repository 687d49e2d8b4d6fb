"""Tests that write times of the new ledger are counted in Pulsar's buckets."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from ledgerfold.compactor.job.output import LedgerOutput
from ledgerfold.compactor.job.plan import Output
from ledgerfold.compactor.job.rebuild import RawEntry
from ledgerfold.compactor.job.rows import WriteTimes
from ledgerfold.storage.entry import read_header, stamp
from ledgerfold.storage.native import NativeBatchBuilder


@pytest.mark.parametrize(
    ("took_us", "bound"),
    [(0, 0), (500, 0), (501, 1), (1_000, 1), (45_367, 5), (1_000_000, 8), (1_000_001, 9)],
)
def test_a_write_is_counted_in_the_bucket_of_its_duration(took_us: int, bound: int) -> None:
    """Bounds are inclusive; longer writes have a separate bucket."""
    times = WriteTimes().with_one(took_us)
    assert times.counts == tuple(int(at == bound) for at in range(10))
    assert times.total_us == took_us


def test_write_times_of_tasks_add_up() -> None:
    """Bound by bound."""
    both = WriteTimes().with_one(100).plus(WriteTimes().with_one(200).with_one(2_000_000))
    assert (both.counts[0], both.counts[9], sum(both.counts), both.total_us) == (2, 1, 3, 2_000_300)


def test_every_write_and_every_seal_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files: two groups of entries and two syncs, each of 20 ms by this clock."""
    ticks = count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) * 0.02)
    monkeypatch.setattr("ledgerfold.compactor.job.output.time", clock)
    (tmp_path / "9").mkdir()
    with LedgerOutput(Output(str(tmp_path), 9, segment_bytes_max=1)) as ledger:
        for number in range(2):
            data = entry(number)
            header = read_header(data)
            values_at = header.header_bytes + header.key_bytes
            keys_at = header.header_bytes
            raw = RawEntry(data[:keys_at], data[keys_at:values_at], data[values_at:])
            ledger.append(header, raw, number)
        ledger.finish()
    assert len(ledger.sealed) == 2
    assert ledger.write_times == WriteTimes((0, 0, 0, 0, 4, 0, 0, 0, 0, 0), 80_000)


def entry(number: int) -> bytes:
    builder = NativeBatchBuilder("p")
    builder.add(b"v", b"k")
    data = builder.build(sequence_id=number, publish_time_ms=1)
    return stamp(data, 1, number, append_time_ms=1, producer_number=1)
