"""A file's messages, written as a log: unchanged, in entries of one publish time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.whatif import file_log
from ledgerfold.broker.whatif.file_log import FileMessage, write_log
from ledgerfold.compactor.strategies.publishing_order import PUBLISHING_ORDER
from ledgerfold.storage.entry import ENTRY_BYTES_MAX
from ledgerfold.storage.errors import InvalidRequest
from tests.support.compaction import read_stored
from tests.support.local_analysis import analyze

MESSAGES = [
    FileMessage(b"a", b"1", 7, 1000),
    FileMessage(None, b"2", 0, 1000),
    FileMessage(b"a", b"3", 0, 2000),
    FileMessage(b"b", b"", 0, 2000),
    FileMessage(b"b", b"4", 0, 1500),
]


def test_written_values_are_read(tmp_path: Path) -> None:
    """Keys, values, event times; an entry for each publish time in turn."""
    plan = write_log(tmp_path, MESSAGES, now_ms=5000)
    stored = read_stored(tmp_path / "ledgers", plan.segments)
    found = [(each.key, each.value, each.event_time_ms) for each in stored]
    assert found == [(each.key, each.value, each.event_time_ms) for each in MESSAGES]
    (segment,) = plan.segments
    assert (segment.entries, segment.publish_time_min_ms, segment.publish_time_max_ms) == (
        3,
        1000,
        2000,
    )
    figures = analyze(plan, [PUBLISHING_ORDER])
    assert (figures.sized[0].messages, figures.counts.null_keys) == (2, 1)


def test_many_messages_are_split_into_entries_and_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So memory holds no more than an entry."""
    monkeypatch.setattr(file_log, "_MESSAGES_MAX", 2)
    monkeypatch.setattr(file_log, "_SEGMENT_BYTES", 300)
    messages = (FileMessage(b"%d" % number, b"v" * 60) for number in range(7))
    plan = write_log(tmp_path, messages, now_ms=0)
    assert sum(segment.messages for segment in plan.segments) == 7
    assert sum(segment.entries for segment in plan.segments) == 4
    assert len(plan.segments) == 4
    assert analyze(plan, [PUBLISHING_ORDER]).sized[0].messages == 7


def test_an_empty_file_is_an_empty_plan(tmp_path: Path) -> None:
    """An empty file."""
    plan = write_log(tmp_path, [], now_ms=0)
    assert not plan.segments


def test_a_message_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """As a broker would refuse it."""
    with pytest.raises(InvalidRequest, match="the limit is"):
        write_log(tmp_path, [FileMessage(b"k", bytes(ENTRY_BYTES_MAX))], now_ms=0)
