"""Passes of Kafka's cleaner, its controls, and time as its cases count it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.cases.compare import StepFailed
from tests.cases.model import Step
from tests.cases.steps.kafka import change_broker, kafka_topic
from tests.cases.verbs import verb
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.cases.runner import Run

# The size of the smallest offset map that a broker accepts: 1 MiB and a byte, 24 bytes an entry.
_MAP_BYTES = 1024 * 1024 + 24
_MAP_SLOTS = _MAP_BYTES // 24


@verb("clean [in-background]")
def clean(run: Run, step: Step) -> str:
    """Cleans the topic once, regardless of its dirty ratio."""
    name = kafka_topic(run).name
    if "in-background" not in step.arguments:
        return _turned(run, step, run.ask("kafka-clean", topic=name))
    pool = ThreadPoolExecutor(1)
    asked = run.target.ask
    run.turning = pool.submit(lambda: asked("kafka-clean", topic=name))
    pool.shutdown(wait=False)
    wait_until(lambda: run.ask("kafka-cleaner", topic=name)["stats"]["state"], "a round began")
    return "begun"


@verb("await-clean")
def await_clean(run: Run, step: Step) -> str:
    """Returns the result of the cleaning in the background."""
    if run.turning is None:
        raise StepFailed("no round was begun in the background")
    turning, run.turning = run.turning, None
    return _turned(run, step, turning.result())


def _turned(run: Run, step: Step, turn: dict[str, Any]) -> str:
    """Fails the case if nothing is expected and the cleaning did not succeed."""
    run.turn = turn
    if turn["failure"]:
        became = "failed"
    elif turn["aborted"]:
        became = "aborted"
    else:
        became = "cleaned" if turn["log"] else "nothing-to-clean"
    if became != "cleaned" and step.expected is None:
        raise StepFailed(f"{became}: {turn['failure']}")
    return became


@verb("turn")
def turn(run: Run, step: Step) -> str:
    """Runs one pass of a cleaner thread; returns the topic that it chose, or `none`."""
    run.turn = told = run.ask("kafka-clean")
    return str(told["log"] or "none").rpartition("/")[2]


@verb("retention-pass")
def retention_pass(run: Run, step: Step) -> Any:
    """Runs a pass of the retention thread; returns the number of deleted segments."""
    return run.ask("kafka-retention")["deleted"]


@verb("set-checkpoint OFFSET")
def set_checkpoint(run: Run, step: Step) -> None:
    """Sets the start of the next cleaning; `none`: deletes it."""
    text = str(step.arguments["offset"])
    offset = -1 if text == "none" else int(text)
    run.ask("kafka-set-cleaning", topic=kafka_topic(run).name, checkpoint=offset)


@verb("cleaning ACTION")
def cleaning(run: Run, step: Step) -> None:
    """`abort-and-pause`, `resume`, or `uncleanable`: the cleaner ignores the topic."""
    action, name = str(step.arguments["action"]), kafka_topic(run).name
    if action == "uncleanable":
        run.ask("kafka-set-cleaning", topic=name, uncleanable="by the case")
    else:
        run.ask("kafka-set-cleaning", topic=name, action=action)


@verb("map-keys N")
def map_keys(run: Run, step: Step) -> None:
    """Limits the offset map to that number of keys, until the case ends."""
    # Half a key more, so that rounding removes none.
    factor = (int(step.arguments["n"]) + 0.5) / _MAP_SLOTS
    settings: dict[str, str | None] = {
        "log.cleaner.dedupe.buffer.size": str(_MAP_BYTES),
        "log.cleaner.io.buffer.load.factor": repr(factor),
    }
    change_broker(run, settings)


@verb("damage N")
def damage(run: Run, step: Step) -> None:
    """Writes garbage into the segment of that number, on the disk."""
    run.ask("kafka-damage", topic=kafka_topic(run).name, segment=step.arguments["n"])


@verb("at TIME")
def at(run: Run, step: Step) -> None:
    """Advances the clock to that time after the beginning of the case."""
    left_ms = run.began_ms + int(step.arguments["time"]) - run.ask("now")["ms"]
    if left_ms < 0:
        raise StepFailed(f"that was {-left_ms} ms ago")
    if left_ms:
        run.ask("advance", ms=left_ms)
