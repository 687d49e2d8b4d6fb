"""The worked examples of the rules, on the model."""

from __future__ import annotations

import pytest

from tests.model.kafka.cleanable import ratio_of
from tests.model.kafka.cleaner import DOCUMENTED, KAFKA
from tests.model.kafka.shorthand import Bench

DAY_MS = 86_400_000


def test_cleaning_keeps_the_last_record_of_each_key_below_the_active_segment() -> None:
    bench = Bench()
    bench.write("0:A=a0 1:B=b0 2:A=a1 3:C=c0 | 4:B=b1 5:A=a2 6:D=d0 |* 7:A=a3")
    turn = bench.turn()
    assert bench.left() == "3:C=c0 4:B=b1 5:A=a2 6:D=d0 7:A=a3"
    assert [segment["base"] for segment in bench.ask("segments")["segments"]] == [0, 7]
    assert turn["checkpoint"] == {"t-0": 7}
    assert bench.ask("info")["start"] == 0
    assert bench.ask("read", offset=0)["records"][0]["offset"] == 3


def test_a_ratio_must_be_above_the_threshold() -> None:
    assert ratio_of(300, 200) == 0.4
    assert ratio_of(300, 300) == 0.5
    assert (ratio_of(300, 301) or 0) > 0.5


def test_a_tombstone_is_removed_at_its_delete_horizon() -> None:
    bench = Bench()
    bench.write("0:A=v 1:A=∅ 2:Z=1 |*")
    bench.at(1000)
    assert bench.turn()["checkpoint"] == {"t-0": 3}
    assert (bench.left(), bench.horizons()) == ("1:A=∅ 2:Z=1", {1: 1000 + DAY_MS})
    bench.at(1000 + DAY_MS)
    assert bench.turn()["log"] is None
    bench.write("3:Y=1 |*")
    bench.at(999 + DAY_MS)
    bench.turn()
    assert bench.left() == "1:A=∅ 2:Z=1 3:Y=1"
    bench.write("4:X=1 |*")
    bench.at(1000 + DAY_MS)
    bench.turn()
    assert bench.left() == "2:Z=1 3:Y=1 4:X=1"


def test_a_full_map_makes_a_cleaning_partial() -> None:
    bench = Bench(keys=2)
    bench.write("0:k0=0 1:k1=1 2:k0=2 3:k1=3 4:k2=4 |*")
    assert bench.turn()["checkpoint"] == {"t-0": 2}
    assert bench.left() == "0:k0=0 1:k1=1 2:k0=2 3:k1=3 4:k2=4"
    assert bench.turn()["checkpoint"] == {"t-0": 4}
    assert bench.left() == "2:k0=2 3:k1=3 4:k2=4"
    assert bench.turn()["checkpoint"] == {"t-0": 5}


def test_a_map_may_become_full_inside_a_batch() -> None:
    bench = Bench(keys=2)
    bench.write("[0:a=0 1:b=1 2:c=2 3:a=3] [4:b=4] |*")
    assert bench.turn()["checkpoint"] == {"t-0": 2}
    assert bench.turn()["checkpoint"] == {"t-0": 4}
    assert bench.left() == "[1:b=1 2:c=2 3:a=3] 4:b=4"
    assert (bench.batches()[0]["base"], bench.batches()[0]["last"]) == (0, 3)
    assert bench.turn()["checkpoint"] == {"t-0": 5}
    assert bench.left() == "[2:c=2 3:a=3] 4:b=4"


def test_the_last_batch_of_a_cleaning_keeps_its_header() -> None:
    bench = Bench(cleanup_policy="delete")
    bench.write("0:a=1 1:=keyless |*")
    bench.ask("config", config={"cleanup.policy": "compact"})
    assert bench.turn()["stats"]["invalidMessagesRead"] == 1
    assert bench.left() == "0:a=1 1:{}"
    bench.write("2:b=1 |*")
    bench.turn()
    assert bench.left() == "0:a=1 2:b=1"


def test_the_last_batch_of_a_producer_keeps_its_header() -> None:
    bench = Bench()
    bench.write("[0:1=a 1:2=a 2:3=a]", pid=1, sequence=0)
    bench.write("[3:3=b 4:1=b 5:4=b]", pid=2, sequence=0)
    bench.write("[6:1=c 7:4=c]", pid=3, sequence=0)
    bench.write("|*")
    bench.turn()
    assert bench.left() == "1:2=a 3:3=b [6:1=c 7:4=c]"
    assert [batch["last"] for batch in bench.batches()] == [2, 5, 7]
    assert [batch["lastSequence"] for batch in bench.batches()] == [2, 2, 1]
    bench.write("8:2=d", pid=4, sequence=0)
    bench.write("|*")
    bench.turn()
    assert bench.left() == "2:{} 3:3=b [6:1=c 7:4=c] 8:2=d"
    bench.ask("reopen", clean=False)
    records = [{"key": "1", "value": "a"}] * 3
    again = bench.ask("append", records=records, batch=True, pid=1, sequence=0)
    assert again["batches"] == [[0, 2]]


def test_an_aborted_write_replaces_nothing() -> None:
    bench = Bench()
    bench.write("0:k=old")
    bench.transact("1:k=x", pid=9, sequence=0)
    bench.end(9, "abort")
    bench.write("3:x=1 |*")
    bench.turn()
    assert bench.left() == "0:k=old 1:{} 2:ABORT 3:x=1"
    assert bench.ask("aborted")["transactions"] == [{"pid": 9, "first": 1, "last": 2, "segment": 0}]


def test_a_marker_is_removed_after_its_data_and_its_horizon() -> None:
    retention_ms = 100
    bench = Bench(delete_retention_ms=retention_ms)
    bench.transact("0:A=1", pid=1, sequence=0)
    bench.end(1, "commit")
    bench.transact("2:A=2", pid=1, sequence=1)
    bench.end(1, "commit")
    bench.write("|*")
    bench.turn()
    assert (bench.left(), bench.horizons()) == ("1:COMMIT 2:A=2 3:COMMIT", {})
    for at_ms, text, left in (
        (10, "4:Z=1", "1:COMMIT 2:A=2 3:COMMIT 4:Z=1"),
        (10 + retention_ms - 1, "5:Y=1", "1:COMMIT 2:A=2 3:COMMIT 4:Z=1 5:Y=1"),
        (10 + retention_ms, "6:X=1", "2:A=2 3:COMMIT 4:Z=1 5:Y=1 6:X=1"),
    ):
        bench.write(f"{text} |*")
        bench.at(at_ms)
        bench.turn()
        assert bench.left() == left


def test_zero_retention_takes_two_cleanings() -> None:
    bench = Bench(delete_retention_ms=0)
    bench.at(500)
    bench.write("0:k=v 1:k=∅ 2:o=x |*")
    bench.turn()
    assert (bench.left(), bench.horizons()) == ("1:k=∅ 2:o=x", {1: 500})
    bench.write("3:p=1 |*")
    bench.turn()
    assert bench.left() == "2:o=x 3:p=1"


def test_a_delete_horizon_belongs_to_the_whole_batch() -> None:
    bench = Bench(delete_retention_ms=100)
    bench.write("0:a=1 [1:a=∅ 2:b=v 3:c=∅] 4:z=1 |*")
    bench.turn()
    assert bench.horizons() == {1: 100}
    bench.write("5:c=back |*")
    bench.at(50)
    bench.turn()
    assert (bench.left(), bench.horizons()) == ("[1:a=∅ 2:b=v] 4:z=1 5:c=back", {1: 100})
    bench.write("6:y=1 |*")
    bench.at(100)
    bench.turn()
    assert (bench.left(), bench.horizons()) == ("2:b=v 4:z=1 5:c=back 6:y=1", {1: 100})


def test_a_tombstone_after_the_clean_point_gets_its_horizon() -> None:
    bench = Bench(keys=2)
    bench.write("0:a=1 1:b=1 2:c=∅ 3:d=1 |*")
    bench.at(1000)
    assert bench.turn()["checkpoint"] == {"t-0": 2}
    assert bench.horizons() == {2: 1000 + DAY_MS}


@pytest.mark.parametrize(("profile", "left"), [(KAFKA, False), (DOCUMENTED, True)])
def test_a_cleaning_that_begins_after_an_abort(profile: str, left: bool) -> None:
    """Kafka 4.1.0 treats records that the producer commits later as aborted, and so does not map
    them.
    """
    bench = Bench(profile, keys=2, index_interval_bytes=0)
    bench.transact("0:a=x", pid=7, sequence=0)
    bench.end(7, "abort")
    bench.write("2:a=1 3:b=1")
    bench.transact("4:b=2", pid=7, sequence=1)
    bench.end(7, "commit")
    bench.write("|*")
    bench.turn()
    assert bench.ask("plan")["firstDirty"] == 4
    bench.turn()
    assert ("3:b=1" not in bench.left()) is left
