"""Kafka topics on the command line, against a real broker without a compactor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold
from tests.unit.cli.conftest import Ledgerfold

# The cleaner makes no turns by itself; there is no compactor here.
CALM = ("--cleanup-policy", "compact", "--config", "min.cleanable.dirty.ratio=1")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Starts a broker for these tests; its cleaner examines all logs."""
    data_dir = tmp_path_factory.mktemp("kafka-verbs")
    with BrokerProcess(data_dir, arguments=("--compactor", "off")) as broker:
        yield broker.url


@pytest.fixture
def kafka(cli: Ledgerfold, topic: str) -> str:
    """A compacted topic with four records, the last one in the active segment."""
    assert cli("topics", "create", topic, *CALM).code == 0
    assert cli("produce", topic, "-K", ":", stdin=b"a:1\nb:1\na:2\n").code == 0
    assert cli("topics", "roll", topic).out == "The active segment begins at offset 3.\n"
    assert cli("produce", topic, "-k", "b", "--tombstone").code == 0
    return topic


@pytest.fixture(scope="module")
def untouched(url: str) -> str:
    """A compacted topic for commands that change nothing."""
    assert ledgerfold("--url", url, "topics", "create", "untouched", *CALM).code == 0
    return "untouched"


def described(cli: Ledgerfold, topic: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(cli("topics", "describe-log", topic, "--batches").out)
    return document


# messages


def test_times_beyond_the_calendar_are_printed(cli: Ledgerfold, topic: str) -> None:
    """Kafka takes any time, and no time is -1."""
    far = "message.timestamp.after.max.ms=9223372036854775807"
    assert cli("topics", "create", topic, *CALM, "--config", far).code == 0
    assert cli("produce", topic, "-k", "a", "-m", "1", "--event-time", "253402300800000").code == 0
    ran = cli("explain", topic, "-k", "a", "-o", "table")
    assert ran.code == 0, ran.err
    assert "253402300800000 ms" in ran.out


def test_ids_are_offsets(cli: Ledgerfold, kafka: str) -> None:
    """0:o is a start position; a null value is a tombstone, an empty one is a value."""
    assert cli("produce", kafka, "-K", ":", "-v", stdin=b"c:\n").out == "0:4\n"
    rows = cli("read", kafka, "--until-end").rows
    assert [(row["id"], row["offset"]) for row in rows] == [(f"0:{at}", at) for at in range(5)]
    assert [(row["value"], row["tombstone"]) for row in rows[3:]] == [(None, True), ("", False)]
    from_offset = cli("read", kafka, "--offset", "3", "--until-end").rows
    assert cli("read", kafka, "-m", "0:2", "--until-end").rows == from_offset == rows[3:]
    assert "(tombstone)" in cli("read", kafka, "--until-end", "-o", "text").out
    assert cli("topics", "last-message-id", kafka).out == "0:4\n"
    assert cli("topics", "get-message-id", kafka, "-d", "0").out == "0:0\n"


def test_options_for_the_other_kind_of_topic_are_refused(
    cli: Ledgerfold, kafka: str, topic: str
) -> None:
    """A Kafka topic's ids are of ledger 0; a Pulsar topic has no offsets and no transactions."""
    ran = cli("read", kafka, "-m", "3:2", "--until-end")
    assert (ran.code, "has the id 0:N" in ran.err) == (2, True), ran.err
    pulsar = f"{topic}-pulsar"
    assert cli("produce", pulsar, "-m", "1").code == 0
    for asked in (("--offset", "0"), ("--isolation", "read_committed")):
        ran = cli("read", pulsar, "--until-end", *asked)
        assert "is not a Kafka topic: it has no offsets" in ran.err
        assert (ran.code, ran.out) == (1, "")


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    cli: Ledgerfold, kafka: str
) -> None:
    """As Kafka's DeleteRecords, which no test had asked about a policy without delete."""
    ran = cli("topics", "delete-records", kafka, "2")
    assert (ran.code, "can not be deleted due to the configured policy" in ran.err) == (1, True)
    assert len(cli("read", kafka, "--until-end").rows) == 4


def test_an_offset_outside_of_the_log(cli: Ledgerfold, kafka: str) -> None:
    """Above its end, or below its start, in Kafka's words."""
    assert "log segments in the range 0 to 4" in cli("read", kafka, "--offset", "5").err
    keep = ("cleanup.policy=compact,delete", "retention.ms=-1")
    assert cli("topics", "set-config", kafka, *keep).code == 0
    assert cli("topics", "delete-records", kafka, "2").out == "The log begins at offset 2.\n"
    assert cli("read", kafka, "--offset", "1").code == 1
    assert [row["offset"] for row in cli("read", kafka, "--until-end").rows] == [2, 3]
    assert cli("topics", "delete-records", kafka, "9").code == 1
    assert cli("topics", "delete-records", kafka, "-1").out == "The log begins at offset 4.\n"
    assert cli("topics", "delete-records", kafka, "-2").code == 2
    assert cli("read", kafka, "--offset", "2", "--from", "latest").code == 2


def test_a_log_is_truncated(cli: Ledgerfold, kafka: str) -> None:
    """A batch that crosses the new end is removed whole; its offsets are assigned again."""
    assert cli("cleaner", "pause", kafka).code == 0
    assert cli("topics", "truncate-log", kafka, "4").out == "The log ends at offset 4.\n"
    assert cli("topics", "truncate-log", kafka, "1").out == "The log ends at offset 1.\n"
    assert "log segments in the range 0 to 1" in cli("read", kafka, "--offset", "2").err
    assert cli("produce", kafka, "-k", "c", "-m", "new", "-v").out == "0:1\n"
    rows = cli("read", kafka, "--until-end").rows
    assert [(row["offset"], row["value"]) for row in rows] == [(1, "new")]
    assert cli("topics", "truncate-log", kafka, "-1").code == 2


def test_a_record_without_a_key_is_refused(cli: Ledgerfold, untouched: str) -> None:
    ran = cli("produce", untouched, "-m", "x")
    """It is told once, in the words of the command line."""
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.endswith("is a compacted Kafka topic: each record needs a key. Use -k or -K.")


@pytest.mark.parametrize("of", [["topics"], ["cleaner"]])
def test_an_unknown_setting_cannot_be_reset(cli: Ledgerfold, kafka: str, of: list[str]) -> None:
    topic = [kafka] if of == ["topics"] else []
    ran = cli(*of, "unset-config", *topic, "no.such")
    assert ran.code == 2
    assert "setting no.such for logs" in ran.err


# settings


def test_settings_are_set_listed_and_removed(cli: Ledgerfold, kafka: str) -> None:
    assert cli("topics", "set-config", kafka, "segment.ms=60000", "retention.bytes=5").code == 0
    own = {row["name"]: row["value"] for row in cli("topics", "get-config", kafka, "--set").rows}
    assert own == {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1.0",
        "segment.ms": "60000",
        "retention.bytes": "5",
    }
    assert cli("topics", "get-config", kafka, "segment.ms").out == "60000\n"
    assert cli("topics", "unset-config", kafka, "segment.ms").code == 0
    assert cli("topics", "get-config", kafka, "segment.ms").out == "604800000\n"
    every = cli("topics", "get-config", kafka, "--all").rows
    (row,) = (row for row in every if row["name"] == "delete.retention.ms")
    assert (row["value"], row["unit"], row["source"]) == ("86400000", "ms", "default")
    assert "tombstones" in row["meaning"]
    assert cli("topics", "get-config", kafka, "segment.size").code == 2


@pytest.mark.parametrize(
    ("pair", "code", "says"),
    [
        (
            "cleanup.policy=Compact",
            2,
            "Invalid value Compact for configuration cleanup.policy: String must be one of",
        ),
        ("min.cleanable.dirty.ratio=2", 2, "Value must be no more than 1"),
        ("no.such.thing=1", 2, "Unknown topic config name: no.such.thing"),
        ("segment.ms", 2, "expected NAME=VALUE"),
    ],
)
def test_invalid_settings_get_kafkas_error(
    cli: Ledgerfold, untouched: str, pair: str, code: int, says: str
) -> None:
    """None of the settings of the command are applied."""
    ran = cli("topics", "set-config", untouched, "segment.ms=7", pair)
    assert (ran.code, says in ran.err) == (code, True)
    assert cli("topics", "get-config", untouched, "segment.ms").out == "604800000\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", "segment.ms=5"],
        ["--cleanup-policy", "compact", "--config", "cleanup.policy=delete"],
        ["--cleanup-policy", "compact", "--config", "segment.ms=5", "--config", "segment.ms=6"],
    ],
)
def test_contradictory_options_create_no_topic(
    cli: Ledgerfold, topic: str, arguments: list[str]
) -> None:
    assert cli("topics", "create", topic, *arguments).code == 2
    assert cli("topics", "create", topic, "--cleanup-policy", "wrong").code == 2
    assert cli("topics", "stats", topic).code == 3


def test_settings_of_the_broker_change(cli: Ledgerfold, kafka: str) -> None:
    """Tests the settings that Kafka can change on a running broker; a topic inherits them."""
    assert cli("cleaner", "set-config", "log.index.interval.bytes=8192").code == 0
    own = cli("cleaner", "get-config", "--set").rows
    assert [(row["name"], row["value"]) for row in own] == [("log.index.interval.bytes", "8192")]
    rows = cli("topics", "get-config", kafka).rows
    (row,) = (row for row in rows if row["name"] == "index.interval.bytes")
    assert (row["value"], row["source"]) == ("8192", "log.index.interval.bytes")
    assert cli("cleaner", "unset-config", "log.index.interval.bytes").code == 0
    assert cli("cleaner", "get-config", "log.index.interval.bytes").out == "4096\n"
    assert cli("cleaner", "set-config", "log.cleaner.thread=2").code == 2
    ran = cli("cleaner", "set-config", "log.cleaner.enable=false")
    assert (ran.code, "Cannot update these configs dynamically" in ran.err) == (2, True)


def test_partitions_of_a_kafka_topic_are_kafka_topics(cli: Ledgerfold, topic: str) -> None:
    """Also later partitions, with the settings of the topic."""
    assert cli("topics", "create-partitioned-topic", topic, "-p", "2", *CALM).code == 0
    assert cli("topics", "set-config", topic, "segment.ms=5000").code == 0
    assert cli("topics", "update-partitioned-topic", topic, "-p", "3").code == 0
    for at in range(3):
        assert cli("topics", "get-config", f"{topic}-partition-{at}", "segment.ms").out == "5000\n"
    assert cli("produce", topic, "-K", ":", stdin=b"a:1\nb:1\nc:1\nd:1\ne:1\n").code == 0
    stats = json.loads(cli("topics", "partitioned-stats", topic, "--per-partition").out)
    assert (stats["msgInCounter"], len(stats["partitions"])) == (5, 3)


# the log


def test_a_log_is_described(cli: Ledgerfold, kafka: str) -> None:
    document = described(cli, kafka)
    assert (document["log_end_offset"], document["checkpoint"]) == (4, None)
    spans = [(each["base_offset"], each["active"]) for each in document["segments"]]
    assert spans == [(0, False), (3, True)]
    batches = document["batches"]
    assert [each["records"] for each in batches if each["base_offset"] == 3] == [1]
    assert {each["compression"] for each in batches} == {"none"}
    shown = cli("topics", "describe-log", kafka, "-o", "table").out
    assert "segments\nbase_offset" in shown
    assert "batches" not in shown


def test_a_page_of_batches_begins_at_the_given_offset(cli: Ledgerfold, kafka: str) -> None:
    assert described(cli, kafka)["more_from"] is None
    document = json.loads(cli("topics", "describe-log", kafka, "--from", "3").out)
    assert [each["base_offset"] for each in document["batches"]] == [3]
    assert cli("topics", "describe-log", kafka, "--from", "-1").code == 2


def test_stats_show_kafkas_figures(cli: Ledgerfold, kafka: str) -> None:
    stats = json.loads(cli("topics", "stats", kafka).out)
    assert (stats["msgInCounter"], stats["kafka"]["logEndOffset"]) == (4, 4)
    internal = json.loads(cli("topics", "stats-internal", kafka).out)
    assert [each["baseOffset"] for each in internal["kafka"]["segmentList"]] == [0, 3]


# the cleaner


def test_a_plan_shows_tail_head_and_bounds(cli: Ledgerfold, kafka: str) -> None:
    (plan,) = cli("cleaner", "plan", kafka).rows
    assert (plan["log"], plan["tail"], plan["head"]) == ([0, 4], [0, 0], [0, 3])
    assert (plan["ratio"], plan["bound_by"]) == (1.0, "active segment")
    assert plan["verdict"] == "not dirtier than min.cleanable.dirty.ratio: 1 to 1"
    shown = cli("cleaner", "plan", kafka, "-o", "table").out
    assert "head                      0 to 3\n" in shown


def test_a_plan_states_why_each_log_is_not_cleaned(cli: Ledgerfold, kafka: str) -> None:
    (turn,) = cli("cleaner", "run").rows
    assert turn["cleaned"] is None
    whys = {each["topic"]: each["why_not"] for each in turn["logs"]}
    name = f"persistent://public/default/{kafka}"
    assert whys[name] == "not dirtier than min.cleanable.dirty.ratio: 1 to 1"


def test_without_a_compactor_a_pass_fails(cli: Ledgerfold, kafka: str) -> None:
    """The log is unchanged and not marked uncleanable."""
    ran = cli("cleaner", "run", "--topic", kafka)
    assert (ran.code, "compactor" in ran.err.lower()) == (1, True)
    assert kafka not in str(json.loads(cli("cleaner", "status").out)["uncleanable"])
    assert len(cli("read", kafka, "--until-end").rows) == 4


def test_cleaning_is_paused_and_resumed(cli: Ledgerfold, kafka: str) -> None:
    assert "pausedCount=1" in cli("cleaner", "pause", kafka).out
    (plan,) = cli("cleaner", "plan", kafka).rows
    assert "Paused" in plan["verdict"]
    assert kafka in str(json.loads(cli("cleaner", "status").out)["states"])
    assert cli("cleaner", "resume", kafka).out == "free\n"
    assert "is not paused" in cli("cleaner", "resume", kafka).err


def test_status_and_checkpoint(cli: Ledgerfold, kafka: str, tmp_path: Path) -> None:
    """Under Kafka's names, and in its file's format."""
    status = json.loads(cli("cleaner", "status").out)
    assert status["gauges"]["kafka.log:type=LogCleaner,name=DeadThreadCount"] == 0
    assert "max-dirty-percent" in cli("cleaner", "status", "-o", "table").out
    assert cli("cleaner", "checkpoint").out == "0\n0\n"
    path = tmp_path / "cleaner-offset-checkpoint"
    assert cli("cleaner", "checkpoint", "--out", str(path)).out == f"{path}: 0 entries\n"
    assert path.read_text() == "0\n0\n"


# partitioned topics


@pytest.mark.parametrize("name", ["user events", "ümlaut", "a" * 250, "a%b"])
def test_a_name_that_kafka_refuses_is_rejected(cli: Ledgerfold, name: str) -> None:
    """A line of a checkpoint file could not be read with it."""
    for verb in (("create",), ("create-partitioned-topic", "-p", "2")):
        ran = cli("topics", *verb, name, *CALM)
        assert (ran.code, "Topic name is invalid: " in ran.err) == (2, True), ran.err
    assert cli("topics", "create", name).code == 0


def test_settings_change_on_all_partitions_or_on_none(cli: Ledgerfold, topic: str) -> None:
    assert cli("topics", "create-partitioned-topic", topic, "-p", "2", *CALM).code == 0
    last = f"{topic}-partition-1"
    assert cli("topics", "set-config", last, "max.compaction.lag.ms=50").code == 0
    ran = cli("topics", "set-config", topic, "min.compaction.lag.ms=100")
    assert "conflict topic config setting" in ran.err
    told = cli("topics", "get-config", f"{topic}-partition-0", "min.compaction.lag.ms")
    assert told.out == "0\n"


def test_verbs_on_a_partitioned_topic_apply_to_each_partition(cli: Ledgerfold, topic: str) -> None:
    assert cli("topics", "create-partitioned-topic", topic, "-p", "2", *CALM).code == 0
    names = [f"{topic}-partition-{at}" for at in range(2)]
    for at, name in enumerate(names):
        assert cli("produce", name, "-K", ":", stdin=b"a:1\n" * (at + 1)).code == 0
    rolled = cli("topics", "roll", topic).out.splitlines()
    assert rolled == [
        f"The active segment of {name} begins at offset {at + 1}." for at, name in enumerate(names)
    ]
    plans = cli("cleaner", "plan", topic).rows
    assert [each["topic"].rpartition("/")[2] for each in plans] == names
    assert [each["head"] for each in plans] == [[0, 1], [0, 2]]
    described = json.loads(cli("topics", "describe-log", topic, "--batches").out)["partitions"]
    assert {name: each["log_end_offset"] for name, each in described.items()} == {
        name: at + 1 for at, name in enumerate(names)
    }
    lines = cli("topics", "describe-log", topic, "-o", "table").out.splitlines()
    assert [line for line in lines if line in names] == names
    paused = cli("cleaner", "pause", topic).out
    assert paused == "LogCleaningPaused{pausedCount=1}\n" * 2
    turns = cli("cleaner", "run", "--topic", topic).rows
    whys = [(row["logs"][0]["topic"].rpartition("/")[2], row["logs"]) for row in turns]
    assert [name for name, _ in whys] == names
    assert all("Paused" in logs[0]["why_not"] for _, logs in whys)
    shown = cli("cleaner", "run", "--topic", topic, "-o", "table").out
    assert shown.count("cleaned ") == 2
    assert cli("cleaner", "resume", topic).out == "free\n" * 2


@pytest.mark.parametrize("paused", [0, 1])
def test_resume_applies_to_paused_partitions(cli: Ledgerfold, topic: str, paused: int) -> None:
    assert cli("topics", "create-partitioned-topic", topic, "-p", "2", *CALM).code == 0
    assert cli("cleaner", "pause", f"{topic}-partition-{paused}").code == 0
    resumed = cli("cleaner", "resume", topic)
    lines = [f"persistent://public/default/{topic}-partition-{1 - paused} is not paused."]
    lines.insert(paused, "free")
    assert (resumed.code, resumed.out.splitlines()) == (0, lines)
    (plan,) = cli("cleaner", "plan", f"{topic}-partition-{paused}").rows
    assert "Paused" not in plan["verdict"]
    again = cli("cleaner", "resume", topic)
    assert (again.code, "is not paused" in again.err) == (2, True)


# the wrong kind of topic


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "compact"],
        ["topics", "create-subscription", "-s", "s"],
        ["topics", "subscriptions"],
        ["topics", "truncate"],
        ["topics", "terminate"],
        ["topics", "trim"],
        ["topics", "set-compaction-threshold", "-t", "1M"],
        ["consume", "-s", "s"],
        ["read", "--read-compacted"],
    ],
)
def test_verbs_that_kafka_topics_reject(
    cli: Ledgerfold, untouched: str, arguments: list[str]
) -> None:
    """The error says what to do."""
    ran = cli(*arguments, untouched)
    assert ran.code == 1
    assert "is a Kafka topic" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "get-config"],
        ["topics", "describe-log"],
        ["topics", "roll"],
        ["cleaner", "plan"],
        ["cleaner", "pause"],
    ],
)
def test_verbs_that_pulsar_topics_reject(cli: Ledgerfold, topic: str, arguments: list[str]) -> None:
    assert cli(*arguments, topic).code == 3
    assert cli("topics", "create", topic).code == 0
    ran = cli(*arguments, topic)
    assert ran.code == 1
    assert "is no Kafka topic" in ran.err
