"""Cases of the Pulsar catalogue, by number, on the real broker and the real compactor.

Groups BAS, TOM, KEY, BAT, INC and what of ENC is compression. Each says what a Pulsar user sees.
Not expressible here, and why: BAS-15 (a run cannot be paused between its phases from outside; see
tests/unit/compactor), KEY-01 and KEY-09 (one null-key setting a broker; the tests of the fold have
both), BAT-14, BAT-20 (Pulsar's own entry format), ENC-08 to ENC-16 (encryption), INC-05, INC-10
(they count on ledgers being dropped while nobody subscribes: docs/NOT_EMULATED.md).
"""

from __future__ import annotations

import pytest

from broker.client import CompressionType, ConsumerType, InitialPosition
from broker.demo.examples import ADDRESSES, PRICES
from tests.conformance.scenario import Scenario

pytestmark = pytest.mark.spark


def test_bas_01_last_value_per_key_and_the_raw_log_untouched(scenario: Scenario) -> None:
    """Twenty messages over ten keys: one each is left; without read-compacted all twenty."""
    keys = [f"key{(number * 7) % 10}" for number in range(20)]
    scenario.publish(" ".join(f"{key}=v{number}" for number, key in enumerate(keys)))
    scenario.compact()
    ledger = scenario.compacted_ledger()
    assert (ledger["entries"], ledger["offloaded"]) == (10, False)
    assert ledger["ledgerId"] > -1
    assert scenario.read() == [f"E{number} {keys[number]}=v{number}" for number in range(10, 20)]
    assert len(scenario.read(compacted=False)) == 20


def test_bas_03_a_thousand_messages_over_ten_keys(scenario: Scenario) -> None:
    """Ten entries are left; 990 events removed (also MET-06)."""
    messages = " ".join(f"k{number % 10}={number}" for number in range(1000))
    scenario.publish(f"[{messages}]")
    run = scenario.compact()
    assert run.counts.removed_events == 990
    assert scenario.read() == [
        f"E0.{990 + number} k{number}={990 + number}" for number in range(10)
    ]


# (case, published, read compacted, removed events or None)
SINGLE_RUNS = [
    ("BAS-04", "c=C_1 a=A_1 b=B_1 a=A_2", ["E0 c=C_1", "E2 b=B_1", "E3 a=A_2"], 1),
    ("BAS-05", "key1=m1 key2=m2 key2=m3", ["E0 key1=m1", "E2 key2=m3"], 1),
    ("BAS-09", "a=1", ["E0 a=1"], 0),
    (
        "TOM-01",
        "key0=m0 key1=m1 key1=∅ [key2=m2 key3=m3 key2=∅] [key3=∅ key4=m3 key4=∅] key4=m4",
        ["E0 key0=m0", "E5 key4=m4"],
        None,
    ),
    ("TOM-02", '1=1 2=2 3=3 1="" 2=""', ["E2 3=3"], 4 - 2 + 0),
    ("TOM-04", '1=1 2=2 1="" 2=""', [], 2),
    ("TOM-06a", "x=∅ x=∅ x=∅", [], 3),
    ("TOM-06b", "[x=∅ x=∅] [x=∅ x=∅]", [], 4),
    ("TOM-08", "k=1 k=∅ k=2", ["E2 k=2"], 1),
    ("TOM-10", 'a=1 b=1 c=1 a=∅ b="" c=∅', [], 3),
    ("TOM-14", "a=. b=null c=0 d=1", ["E0 a=.", "E1 b=null", "E2 c=0", "E3 d=1"], 0),
    ("TOM-19", "a=0 [a=1 b=1 c=∅]", ["E1.0 a=1", "E1.1 b=1"], 2),
    ("KEY-04", "~=x a=1", ["E1 a=1"], 1),
    ("KEY-05", '""=1 ""=2 a=1', ["E1 =2", "E2 a=1"], 1),
    ("KEY-11", "~=1 ~=2 a=1", ["E2 a=1"], 2),
    ("KEY-12", "~=1 ~=2", [], 2),
    ("BAT-01", "[key1=m1 key2=m2 key2=m3]", ["E0.0 key1=m1", "E0.2 key2=m3"], 1),
    ("BAT-02", "[key1=m1 key1=m2 key1=m3] key1=m4", ["E1 key1=m4"], 3),
    (
        "BAT-03",
        "[key1=m1 key1=∅ key2=m3] [key3=m4 key3=m5 key3=m6] [key4=m7 key4=∅ key5=m9]",
        ["E0.2 key2=m3", "E1.2 key3=m6", "E2.2 key5=m9"],
        None,
    ),
    (
        "BAT-05",
        "k1=0 [k1=1 k1=2] k1=3 [k1=4 k1=5] [k2=0 k2=1 k2=2 k2=3]",
        ["E3.1 k1=5", "E4.3 k2=3"],
        None,
    ),
    ("BAT-07", 'k1=0 [k1=1 k1=2] k1=3 [k1=4 k1=5] [k2=10 k2=11 k2=12] k2=""', ["E3.1 k1=5"], None),
    ("BAT-10", "[a=1 a=2 a=3]", ["E0.2 a=3"], 2),
    ("BAT-13", "[a=1 b=1 c=1]", ["E0.0 a=1", "E0.1 b=1", "E0.2 c=1"], 0),
]


@pytest.mark.parametrize(
    ("history", "left", "removed"),
    [case[1:] for case in SINGLE_RUNS],
    ids=[case[0] for case in SINGLE_RUNS],
)
def test_one_run(scenario: Scenario, history: str, left: list[str], removed: int | None) -> None:
    """What a single compaction leaves, and what it counts."""
    scenario.publish(history)
    raw = scenario.read(compacted=False)
    run = scenario.compact()
    assert scenario.read() == left
    assert scenario.read(compacted=False) == raw
    assert scenario.horizon() == raw[-1].split()[0].partition(".")[0]
    if removed is not None:
        assert run.counts.removed_events == removed


def test_bas_06_read_compacted_before_any_compaction_is_raw(scenario: Scenario) -> None:
    """Never compacted: everything, twice over; then only the last."""
    scenario.publish("key0=content0 key0=content1 key0=content2")
    assert len(scenario.read()) == 3
    scenario.compact()
    assert scenario.read() == ["E2 key0=content2"]


def test_bas_11_everything_about_a_message_survives(scenario: Scenario) -> None:
    """Properties, event and publish time, sequence id, producer name."""
    producer = scenario.client.create_producer(scenario.topic, "P", initial_sequence_id=10)
    for key in ("a", "b"):
        producer.send(b"1", partition_key=key, properties={"p": "q"}, event_timestamp=7)
    producer.close()

    def about(compacted: bool) -> list[tuple[object, ...]]:
        return [
            (
                each.properties(),
                each.event_timestamp(),
                each.publish_timestamp(),
                each.producer_name(),
                each.sequence_id(),
                str(each.message_id()),
            )
            for each in scenario.read_messages(compacted=compacted)
        ]

    before = about(False)
    assert before[0][:2] == ({"p": "q"}, 7)
    assert before[0][3] == "P"
    scenario.compact()
    assert about(True) == before


def test_tom_12_and_15_has_more_ends_where_the_view_does(scenario: Scenario) -> None:
    """Ten keys, five of them deleted: five are read, and the loop ends."""
    values = " ".join(f"k{number}=v" for number in range(10))
    scenario.publish(values + " " + " ".join(f"k{number}=∅" for number in range(5, 10)))
    scenario.compact()
    assert scenario.compacted_ledger()["entries"] == 5
    assert [line.split()[1] for line in scenario.read()] == [f"k{n}=v" for n in range(5)]


def test_tom_18_values_after_a_deletion(scenario: Scenario) -> None:
    """Above the horizon everything is raw; a deleted key that comes back is read."""
    scenario.publish(" ".join(f"1={number}" for number in range(10)))
    scenario.compact()
    scenario.publish(" ".join(f"1={number}" for number in range(10, 20)))
    assert [line.split("=")[1] for line in scenario.read()] == [str(n) for n in range(9, 20)]
    scenario.publish("1=∅")
    scenario.compact()
    assert scenario.read() == []
    scenario.publish(" ".join(f"1={number}" for number in range(20, 30)))
    assert [line.split("=")[1] for line in scenario.read()] == [str(n) for n in range(20, 30)]


def test_bat_08_a_batch_loses_another_member_in_a_second_run(scenario: Scenario) -> None:
    """Indexes stay what they were, run after run."""
    scenario.publish("[a=1 b=1]")
    scenario.compact()
    scenario.publish("b=2")
    scenario.compact()
    assert scenario.read() == ["E0.0 a=1", "E1 b=2"]
    assert scenario.compacted_ledger()["entries"] == 2


def test_bat_16_starting_inside_a_batch(scenario: Scenario) -> None:
    """Exclusive: what follows the message; inclusive: with it."""
    scenario.publish("[a=1 b=1 c=1]")
    scenario.compact()
    middle = scenario.read_messages()[1].message_id()
    for inclusive, expected in ((False, ["c"]), (True, ["b", "c"])):
        reader = scenario.client.create_reader(
            scenario.topic, middle, is_read_compacted=True, start_message_id_inclusive=inclusive
        )
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(timeout_millis=5000).partition_key())
        reader.close()
        assert found == expected


def test_bat_18_the_last_id_is_the_last_message_left(scenario: Scenario) -> None:
    """A trailing deletion below the horizon does not count."""
    scenario.publish("[a=1 b=1] b=∅")
    scenario.compact()
    last = scenario.admin.last_message_id(scenario.topic, read_compacted=True)
    assert scenario.name(last) == "E0.0"
    assert scenario.read() == ["E0.0 a=1"]


@pytest.mark.parametrize("compression", list(CompressionType))
def test_enc_06_every_codec(scenario: Scenario, compression: CompressionType) -> None:
    """A partly surviving batch is rebuilt under its own compression."""
    scenario.publish("[a=1 b=1 a=2]", compression)
    scenario.compact()
    assert scenario.read() == ["E0.1 b=1", "E0.2 a=2"]


def test_enc_04_properties_larger_than_the_values(scenario: Scenario) -> None:
    """What is rebuilt may be larger than it was."""
    scenario.publish("[K1=V1 K2=V2 K1=V3]", CompressionType.LZ4, properties={"p1": "\0" * 100})
    scenario.compact()
    assert [each.properties()["p1"] for each in scenario.read_messages()] == ["\0" * 100] * 2


# (case, [(published, read compacted, removed events)])
SEVERAL_RUNS = [
    (
        "INC-01",
        [
            ("a=A_1 b=B_1 a=A_2", ["E1 b=B_1", "E2 a=A_2"], 1),
            ("b=B_2", ["E2 a=A_2", "E3 b=B_2"], 1),
        ],
    ),
    ("INC-02", [("1=8 1=9", ["E1 1=9"], 1), ("1=18 1=19", ["E3 1=19"], 2)]),
    ("INC-08", [("a=1 b=1", ["E0 a=1", "E1 b=1"], 0), ("a=∅", ["E1 b=1"], 1)]),
    ("INC-12", [("a=1 b=1", ["E0 a=1", "E1 b=1"], 0), ("a=2 b=2", ["E2 a=2", "E3 b=2"], 2)]),
]


@pytest.mark.parametrize("steps", [c[1] for c in SEVERAL_RUNS], ids=[c[0] for c in SEVERAL_RUNS])
def test_several_runs(scenario: Scenario, steps: list[tuple[str, list[str], int]]) -> None:
    """Each run goes on from the compacted ledger before it."""
    for history, left, removed in steps:
        scenario.publish(history)
        run = scenario.compact()
        assert scenario.read() == left
        assert run.counts.removed_events == removed


def test_inc_06_nothing_new_starts_no_run(scenario: Scenario) -> None:
    """The documented answer: the ledger stays, and no run is recorded."""
    scenario.publish("a=1")
    scenario.compact()
    before = scenario.compacted_ledger()
    assert scenario.admin.trigger_compaction(scenario.topic) == 0
    assert scenario.compacted_ledger() == before
    assert len(scenario.admin.runs(scenario.topic)) == 1


def test_ret_06_compacted_data_outlive_the_raw_log(scenario: Scenario) -> None:
    """Ten keys compacted, the topic unloaded: raw entries gone, the view intact."""
    scenario.publish(" ".join(f"k{number}=1" for number in range(10)))
    scenario.compact()
    scenario.admin.unload(scenario.topic)
    assert scenario.admin.internal_stats(scenario.topic)["numberOfEntries"] == 0
    assert len(scenario.read()) == 10
    assert scenario.read(compacted=False) == []
    scenario.publish("new=1")
    assert len(scenario.read()) == 11


def test_bas_01_consumers_of_one_subscription_compacted_and_raw(scenario: Scenario) -> None:
    """A subscription may come back without read-compacted, and gets the raw log."""
    scenario.admin.create_topic(scenario.topic)
    scenario.admin.create_subscription(scenario.topic, "sub1")
    scenario.publish("a=1 b=1 a=2")
    scenario.compact()
    for compacted, expected in ((True, ["b=1", "a=2"]), (False, ["a=1", "b=1", "a=2"])):
        consumer = scenario.client.subscribe(
            scenario.topic,
            "sub1",
            consumer_type=ConsumerType.Exclusive,
            initial_position=InitialPosition.Earliest,
            is_read_compacted=compacted,
        )
        found = [scenario.describe(consumer.receive(timeout_millis=5000)) for _ in expected]
        assert [line.split()[1] for line in found] == expected
        consumer.close()


@pytest.mark.parametrize(
    ("pairs", "left"),
    [
        (
            ADDRESSES,
            [(2, "1003", "Milkman Road"), (3, "1002", "21 Jump St"), (5, "1001", "Paper Road 21")],
        ),
        (PRICES, [(2, "p3", "11"), (4, "p6", "12"), (6, "p5", "17")]),
    ],
    ids=["addresses", "prices"],
)
def test_worked_examples(
    scenario: Scenario, pairs: tuple[tuple[str, str], ...], left: list[tuple[int, str, str]]
) -> None:
    """The two examples of the documentation."""
    producer = scenario.client.create_producer(scenario.topic)
    ids = [producer.send(value.encode(), partition_key=key) for key, value in pairs]
    scenario.compact()
    found = [
        (ids.index(each.message_id()), each.partition_key(), each.data().decode())
        for each in scenario.read_messages()
    ]
    assert found == left
