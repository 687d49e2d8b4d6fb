"""Prints one line per case, the difference below those that fail, and a count at the end.

pass  TOM-08  A value after its tombstone                                       0.21 s
FAIL  BAS-05  Ids stay what they were                                           0.19 s
      bas.cases:14:9: RC-read -> E0 key1=m1
      not as expected
        expected  E0 key1=m1
        got       E0 key1=m1  E2 key2=m3
pass  LINE-20 a=1 a=2 | compact | RC-read                                       0.18 s
      compact -> SUCCESS
      RC-read -> E1 a=2
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.cases.runner import Outcome, State

_TITLE_WIDTH = 68
_INDENT = " " * 6


def line(outcome: Outcome) -> str:
    """Describes the result of one case."""
    title = outcome.case.title
    if len(outcome.case.profiles) > 1:
        title = f"{title} ({outcome.profile})"
    head = f"{outcome.state.value:<4}  {outcome.case.number:<7} {title:<{_TITLE_WIDTH}}"
    lines = [f"{head} {outcome.seconds:6.2f} s", *(_INDENT + each for each in details(outcome))]
    return "\n".join(lines)


def details(outcome: Outcome) -> list[str]:
    """Describes where and how a case ended early, or the answers of a case without expectations."""
    found = list(outcome.answers)
    if outcome.step is not None:
        source, number, column = outcome.step.place
        found.append(f"{source}:{number}:{column}: {outcome.step.text}")
    if outcome.why:
        found.append(outcome.why)
    if outcome.difference is not None:
        found += [
            f"  expected  {outcome.difference.expected}",
            f"  got       {outcome.difference.got}",
        ]
    return found


def summary(outcomes: Iterable[Outcome]) -> str:
    """Describes how many cases passed, failed, and could not be decided here."""
    outcomes = list(outcomes)
    counts = Counter(outcome.state for outcome in outcomes)
    parts = [f"{counts[State.PASS]} passed", f"{counts[State.FAIL]} failed"]
    if counts[State.NOT_HERE]:
        parts.append(f"{counts[State.NOT_HERE]} not applicable here")
    seconds = sum(outcome.seconds for outcome in outcomes)
    return f"{', '.join(parts)} in {seconds:.1f} s"
