"""Runs one case on one target, up to the first step whose answer is not as expected.

Each case has a separate namespace, named after it, and its topics there. compare.py judges the
answer of a step; a refused step fails unless the refusal is expected.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.cases.compare import Difference, Judge, Names, Received, StepFailed
from tests.cases.model import Case, Refusal, Step
from tests.cases.protocol import Refused, Target, Unsupported, check_request
from tests.cases.verbs import VERBS
from tests.support.waiting import WAIT_S

# The interval of an `eventually`.
_PAUSE_S = 0.02


class State(Enum):
    PASS = "pass"
    FAIL = "FAIL"
    # The target does not support it: not a failure.
    NOT_HERE = "n/a"


@dataclass(frozen=True)
class Outcome:
    """`step`: the one at which it ended early; `why`: the reason. `answers`: those of a case
    without expectations.
    """

    case: Case
    profile: str
    state: State
    seconds: float = 0.0
    step: Step | None = None
    why: str = ""
    difference: Difference | None = None
    answers: tuple[str, ...] = ()


@dataclass
class Topic:
    """A topic of the case: its full name, the names of its entries."""

    name: str
    names: Names = field(default_factory=Names)
    is_kafka: bool = False
    # By producer id, the next sequence number.
    sequences: dict[int, int] = field(default_factory=dict)


class Run:
    """The state of a running case, for its steps."""

    def __init__(self, target: Target, case: Case) -> None:
        self.target = target
        self.case = case
        self.namespace = f"public/{case.number.lower()}-{uuid.uuid4().hex[:8]}"
        self.topics: dict[str, Topic] = {}
        self.topic = self.use("t")
        self.saved: dict[str, Any] = {}
        self.marks: dict[str, int] = {}
        # Consumers, readers and views by name, with the handles of received messages, by id.
        self.opened: dict[str, dict[str, str]] = {}
        self.is_held = False
        # Undone at the end of the case, the last first.
        self.at_end: list[Callable[[], object]] = []
        self._began_ms: int | None = None
        # Kafka's cleaner: the answer of the last pass, and a pass in progress.
        self.turn: dict[str, Any] = {}
        self.turning: Future[dict[str, Any]] | None = None

    @property
    def began_ms(self) -> int:
        """The creation time of the first Kafka topic: cases count from it."""
        self.remember_time()
        assert self._began_ms is not None
        return self._began_ms

    def remember_time(self) -> None:
        if self._began_ms is None:
            self._began_ms = self.ask("now")["ms"]

    def use(self, name: str) -> Topic:
        """Selects the topic of the following steps."""
        if name not in self.topics:
            self.topics[name] = Topic(f"persistent://{self.namespace}/{name}")
        self.topic = self.topics[name]
        return self.topic

    def ask(self, operation: str, /, **fields: Any) -> dict[str, Any]:
        """Sends a request; fields that are None are omitted. Raises Refused, Unsupported."""
        given = {name: value for name, value in fields.items() if value is not None}
        check_request(operation, given)
        if "name" in given:
            self.handles(given["name"])
        return self.target.ask(operation, **given)

    def on_topic(self, operation: str, /, **fields: Any) -> dict[str, Any]:
        return self.ask(operation, topic=self.topic.name, **fields)

    def scope(self, step: Step) -> dict[str, str]:
        """Returns the scope of a policy: the topic or the namespace."""
        if step.arguments["scope"] == "topic":
            return {"topic": self.topic.name}
        return {"namespace": self.namespace}

    def position(self, text: Any) -> str | list[int] | None:
        """Converts a position of the notation to that of requests."""
        if text is None or text in ("earliest", "latest"):
            named: str | None = text
            return named
        found = self.topic.names.id(text)
        if found is None:
            raise StepFailed(f"there is no {text} yet")
        return found

    def time(self, mark: Any) -> int:
        """Returns the marked time in ms."""
        if mark not in self.marks:
            raise StepFailed(f"no time was marked as {mark}")
        return self.marks[mark]

    def open(self, kind: str, name: Any, **fields: Any) -> None:
        """Opens a "reader", "consumer" or "view" on the topic, to be closed at the end."""
        if name in self.opened:
            raise StepFailed(f"{name} is open already")
        self.opened[str(name)] = {}
        try:
            self.on_topic(kind, name=name, **fields)
        except Exception:
            del self.opened[str(name)]
            raise

    def close(self, name: Any) -> None:
        """Closes the object with this name."""
        self.ask("close", name=name)
        del self.opened[str(name)]

    def handles(self, name: Any) -> dict[str, str]:
        """Returns the received messages, by id."""
        if name not in self.opened:
            raise StepFailed(f"nothing is open as {name}")
        return self.opened[name]

    def received(self, name: str, message: Received) -> None:
        """Stores the handle that acknowledges the message."""
        self.opened[name][self.topic.names.of(message["id"])] = message["handle"]

    def last_id(self, name: Any) -> list[int]:
        """Returns the last id that a reader or consumer gets."""
        found: list[int] = self.ask("last-id", name=name)["id"]
        return found

    def end(self) -> None:
        """Closes everything that the case left open, and forgets it."""
        if self.is_held:
            self.ask("release")
        for name in list(self.opened):
            # It may have been deleted with its topic.
            with suppress(Refused, Unsupported):
                self.close(name)
        if self.turning is not None:
            self.turning.exception()
        for undo in reversed(self.at_end):
            with suppress(Refused, Unsupported):
                undo()


def run_case(target: Target, case: Case, profile: str, topic: str | None = None) -> Outcome:
    """Runs one case under one profile. `topic`: an existing Kafka topic, which is kept."""
    started = time.monotonic()
    run = Run(target, case)
    if topic is not None:
        run.topic.name, run.topic.is_kafka = topic, True
    step: Step | None = None
    answers: list[str] = []

    def outcome(state: State, error: Exception | None = None) -> Outcome:
        difference = getattr(error, "difference", None)
        seconds = time.monotonic() - started
        return Outcome(
            case, profile, state, seconds, step, str(error or ""), difference, tuple(answers)
        )

    try:
        run.ask("namespace", namespace=run.namespace)
        run.ask("profile", namespace=run.namespace, profile=profile)
        for step in case.under(profile):
            answer = _take(run, step)
            if answer is not None and not case.expects:
                shown = Judge(run.topic.names, run.saved, limit=None).write(answer)
                answers.append(f"{step.text} -> {shown}")
    except Unsupported as error:
        return outcome(State.NOT_HERE, error)
    except (StepFailed, Refused, AssertionError) as error:
        # An AssertionError: a process of the target did not start.
        return outcome(State.FAIL, error)
    finally:
        run.end()
    step = None
    return outcome(State.PASS)


def _take(run: Run, step: Step) -> Any:
    deadline_s = time.monotonic() + WAIT_S
    pause = threading.Event()
    while True:
        try:
            return _take_once(run, step)
        except (StepFailed, Refused):
            if not step.patient or time.monotonic() > deadline_s:
                raise
        pause.wait(_PAUSE_S)


def _take_once(run: Run, step: Step) -> Any:
    try:
        answer = VERBS[step.verb].action(run, step)
    except Refused as refused:
        if not isinstance(step.expected, Refusal):
            raise
        if step.expected.code and step.expected.code not in refused.codes:
            wanted = Difference(f"error {step.expected.code}", str(refused))
            raise StepFailed("another error", wanted) from None
        return None
    if step.expected is not None:
        judge = Judge(run.topic.names, run.saved)
        difference = judge.differs(step.expected, answer)
        if difference is not None:
            raise StepFailed("not as expected", difference)
    if step.save_as is not None:
        run.saved[step.save_as] = answer
    return answer
