"""Records a target's answers to a scenario's steps, as text that compares across brokers.

Entries are named in the order of publishing, so ids of two brokers are the same text. A refusal is
"refused"; a step that cannot be executed because an object is missing is "cannot".
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.cases.compare import Judge
from tests.cases.compare import StepFailed as CannotBeTaken
from tests.cases.model import Case, Step
from tests.cases.parser import parse
from tests.cases.protocol import Refused, Target, Unsupported
from tests.cases.runner import Run
from tests.cases.steps import VERBS

Transcript = list[str]


def case_of(steps: Sequence[str]) -> Case:
    """Returns the scenario as a case. Raises NotationError."""
    body = "\n".join(f"    {step}" for step in steps)
    (case,) = parse(f"RND-00 A scenario\n{body}\n", "scenario")
    return case


def replay(target: Target, steps: Sequence[str], profile: str) -> Transcript:
    """Returns one answer per step."""
    case = case_of(steps)
    run = Run(target, case)
    try:
        run.ask("namespace", namespace=run.namespace)
        run.ask("profile", namespace=run.namespace, profile=profile)
        return [_answer(run, step) for step in case.steps]
    finally:
        run.end()


def _answer(run: Run, step: Step) -> str:
    try:
        answer = VERBS[step.verb].action(run, step)
    except Refused:
        return "refused"
    except Unsupported as error:
        return f"not here: {error}"
    except CannotBeTaken:
        return "cannot"
    return Judge(run.topic.names, run.saved).show(answer)


def first_difference(ours: Transcript, theirs: Transcript) -> int | None:
    """Returns the first step whose answers differ; None without one."""
    for number, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        if left != right and not (left.startswith("not here") or right.startswith("not here")):
            return number
    return None
