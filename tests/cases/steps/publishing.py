"""Publishing: entries in the order in which they are written."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.cases.model import Entry, Message, Step
from tests.cases.verbs import verb

if TYPE_CHECKING:
    from tests.cases.runner import Run


@verb("publish [compression=NONE|LZ4|ZLIB|ZSTD|SNAPPY] [producer=NAME] [sequence=N] [partition=N]")
def publish(run: Run, step: Step) -> None:
    """Publishes the step's entries; each gets the next name, E0, E1, ..."""
    arguments = step.arguments
    topic = run.topic.name
    if "partition" in arguments:
        topic += f"-partition-{arguments['partition']}"
    sequence = itertools.count(int(arguments.get("sequence", 0)))
    for sent, is_batch in _requests(step.entries):
        messages = [_message(each) for each in sent]
        if "sequence" in arguments:
            for each in messages:
                each["sequence"] = next(sequence)
        answer = run.ask(
            "produce",
            topic=topic,
            messages=messages,
            batch=is_batch,
            batchMax=len(sent) if is_batch else None,
            compression=arguments.get("compression"),
            producer=arguments.get("producer"),
        )
        for at in answer["ids"][:1] if is_batch else answer["ids"]:
            # A duplicate is not a new entry.
            if at[0] >= 0:
                run.topic.names.add(at)


def _requests(entries: Iterable[Entry]) -> Iterable[tuple[list[Message], bool]]:
    """Yields batches one by one, and runs of plain messages together."""
    for is_batch, group in itertools.groupby(entries, key=lambda entry: entry.is_batch):
        if is_batch:
            yield from ((list(entry.messages), True) for entry in group)
        else:
            yield [entry.messages[0] for entry in group], False


def _message(sent: Message) -> dict[str, Any]:
    made: dict[str, Any] = _value(sent.value)
    if sent.key is not None:
        made["keyB64" if sent.is_byte_key else "key"] = sent.key
    if sent.event_time_ms is not None:
        made["eventTime"] = sent.event_time_ms
    if sent.properties is not None:
        made["props"] = sent.properties
    return made


def _value(value: bytes | None) -> dict[str, Any]:
    try:
        return {"value": None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {"valueB64": base64.b64encode(value or b"").decode()}
