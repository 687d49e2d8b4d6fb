"""Kafka topics: their logs, settings, and remaining batches.

A topic is created by its first use, compacted and always dirty enough, unless `kafka` creates it.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.cases.compare import StepFailed
from tests.cases.logs import NO_HORIZON, Bar, LogBatch, LogRecord, LogText
from tests.cases.model import Step
from tests.cases.verbs import verb

if TYPE_CHECKING:
    from tests.cases.runner import Run, Topic

DEFAULTS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
_NONE = "none"
Answer = dict[str, Any]


def kafka_topic(run: Run) -> Topic:
    """Returns the current topic, created if needed."""
    if not run.topic.is_kafka:
        _create(run, {})
    return run.topic


def _create(run: Run, settings: dict[str, str]) -> None:
    topic = run.topic
    run.remember_time()
    run.on_topic("kafka-create", config={**DEFAULTS, **settings})
    topic.is_kafka = True
    run.at_end.append(lambda: run.ask("delete", topic=topic.name, force=True))


def _settings(step: Step) -> dict[str, str | None]:
    return {name: None if text == _NONE else str(text) for name, text in step.arguments.items()}


@verb("kafka [SETTING=VALUE]")
def kafka(run: Run, step: Step) -> None:
    """Creates the topic as a Kafka topic, with these settings."""
    given = {**DEFAULTS, **_settings(step)}
    _create(run, {name: text for name, text in given.items() if text is not None})


@verb("config [SETTING=VALUE]")
def config(run: Run, step: Step) -> None:
    """Changes the topic's settings; `none` resets one."""
    run.ask("kafka-config", topic=kafka_topic(run).name, config=_settings(step))


@verb("broker-config [SETTING=VALUE]")
def broker_config(run: Run, step: Step) -> None:
    """Changes the broker's settings, until the case ends."""
    change_broker(run, _settings(step))


def change_broker(run: Run, settings: dict[str, str | None]) -> None:
    """Changes settings until the case ends."""
    told = run.ask("kafka-get-config")["config"]
    before = {
        name: told[name][0] if told[name][1] == "broker" else None
        for name in settings
        if name in told
    }
    run.ask("kafka-config", config=settings)
    run.at_end.append(lambda: run.ask("kafka-config", config=before))


@verb("get-config NAME")
def get_config(run: Run, step: Step) -> Any:
    """Returns the topic's effective settings."""
    told = run.ask("kafka-get-config", topic=kafka_topic(run).name)["config"]
    return told[str(step.arguments["name"])][0]


# -- appending ---------------------------------------------------------------------------------


@verb("append BATCHES", takes_log=True)
def append(run: Run, step: Step) -> str:
    """Appends batches; returns the spans of offsets in the broker's answer."""
    assert step.log is not None
    topic = kafka_topic(run)
    spans: list[str] = []
    for kind, items in itertools.groupby(step.log.items, key=_kind):
        if kind == "bar":
            for _ in items:
                run.ask("kafka-roll", topic=topic.name)
        elif kind == "marker":
            for each in items:
                assert isinstance(each, LogBatch)
                spans.append(_end_transaction(run, topic, each))
        else:
            batches = [each for each in items if isinstance(each, LogBatch)]
            spans += _append(run, topic, batches, kind)
    return " ".join(spans)


def _kind(item: LogBatch | Bar) -> str:
    if isinstance(item, Bar):
        return "bar"
    if item.marker:
        return "marker"
    return item.origin


def _append(run: Run, topic: Topic, batches: Sequence[LogBatch], origin: str) -> list[str]:
    asked = [_asked(run, topic, each) for each in batches]
    told = run.ask("kafka-append", topic=topic.name, batches=asked, origin=origin)["batches"]
    for batch, (first, _) in zip(batches, told, strict=True):
        # NOTE: a duplicate is answered with the offsets of the original.
        if batch.sequence is None:
            _check_offset(batch, first)
    return ["..".join(map(str, dict.fromkeys(span))) for span in told]


def _end_transaction(run: Run, topic: Topic, marker: LogBatch) -> str:
    at = run.ask("kafka-marker", topic=topic.name, pid=marker.pid, type=marker.marker)["offset"]
    _check_offset(marker, at)
    return str(at)


def _check_offset(batch: LogBatch, first: int) -> None:
    if batch.base not in (None, first):
        raise StepFailed(f"{batch} was appended at offset {first}")


def _asked(run: Run, topic: Topic, batch: LogBatch) -> Answer:
    asked: Answer = {"records": [_record(run, each) for each in batch.records]}
    if batch.origin == "replication":
        asked["at"] = batch.base
        for record, given in zip(batch.records, asked["records"], strict=True):
            given["offset"] = record.offset
    if batch.pid is not None:
        sequence = batch.sequence
        if sequence is None:
            sequence = topic.sequences.get(batch.pid, 0)
        topic.sequences[batch.pid] = sequence + len(batch.records)
        asked |= {"pid": batch.pid, "epoch": batch.epoch or 0, "sequence": sequence}
        asked["transactional"] = bool(batch.is_transactional)
    if batch.codec is not None:
        asked["codec"] = batch.codec
    return asked


def _record(run: Run, record: LogRecord) -> Answer:
    asked: Answer = {}
    if record.timestamp_ms is not None:
        asked["timestamp"] = run.began_ms + record.timestamp_ms
    for name, content in (("keyB64", record.key), ("valueB64", record.value)):
        if content is not None:
            asked[name] = base64.b64encode(content).decode()
    return asked


@verb("roll")
def roll(run: Run, step: Step) -> None:
    """Ends the active segment."""
    run.ask("kafka-roll", topic=kafka_topic(run).name)


@verb("high-watermark [N]")
def high_watermark(run: Run, step: Step) -> None:
    """Holds the high watermark at an offset, or releases it."""
    offset = step.arguments.get("n")
    run.ask("kafka-high-watermark", topic=kafka_topic(run).name, offset=offset)


@verb("log-start N")
def log_start(run: Run, step: Step) -> None:
    """Moves the log start, whatever the cleanup policy: records below are no longer read."""
    run.ask("kafka-log-start", topic=kafka_topic(run).name, offset=step.arguments["n"])


@verb("truncate-log N")
def truncate_log(run: Run, step: Step) -> None:
    """Truncates the log: records at or after the offset are deleted."""
    run.ask("kafka-truncate", topic=kafka_topic(run).name, offset=step.arguments["n"])


# -- what is left ------------------------------------------------------------------------------


@verb("left", answers_log=True)
def left(run: Run, step: Step) -> LogText:
    """Returns the stored log, batch by batch."""
    segments = run.ask("kafka-batches", topic=kafka_topic(run).name)["segments"]
    items: list[LogBatch | Bar] = []
    for number, segment in enumerate(segments):
        if number:
            items.append(Bar(segment["active"]))
        items += [_stored(run, each) for each in segment["batches"]]
    return LogText(tuple(items))


@verb("log-read [from=OFFSET] [at=earliest|latest] [time=MS] [max=N] [committed]", answers_log=True)
def log_read(run: Run, step: Step) -> LogText:
    """Returns the records that a consumer receives, from there to the end."""
    given = step.arguments
    time = given.get("time")
    told = run.ask(
        "kafka-read",
        topic=kafka_topic(run).name,
        offset=int(given["from"]) if "from" in given else None,
        at=given.get("at"),
        timestamp=None if time is None else run.began_ms + int(time),
        committed=given.get("committed"),
        max=given.get("max"),
    )["records"]
    records = [_stored_record(run, each) for each in told]
    return LogText(tuple(LogBatch((each,), each.offset, each.offset) for each in records))


def _stored(run: Run, batch: Answer) -> LogBatch:
    horizon = batch["horizon"]
    return LogBatch(
        records=tuple(_stored_record(run, each) for each in batch["records"]),
        base=batch["base"],
        last=batch["last"],
        marker=batch["marker"],
        pid=batch["pid"],
        epoch=batch["epoch"],
        sequence=batch["sequence"],
        is_transactional=batch["transactional"],
        codec=batch["codec"],
        horizon_ms=NO_HORIZON if horizon is None else horizon - run.began_ms,
        md5=batch["md5"],
    )


def _stored_record(run: Run, record: Answer) -> LogRecord:
    key, value = (
        base64.b64decode(record[name]) if name in record else None
        for name in ("keyB64", "valueB64")
    )
    return LogRecord(key, value, record["offset"], record["timestamp"] - run.began_ms)
