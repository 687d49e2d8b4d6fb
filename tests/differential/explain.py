"""Known differences, each with its line of docs.

>>> explanation(["a=1", "RC-read"], "E0 a=1", "E0 a=1")
''
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import dropwhile
from typing import NamedTuple

_LATEST = "from=latest inclusive"


class Known(NamedTuple):
    """`applies` gets the steps up to the differing one, and both answers.

    `by_client`: a behaviour of Pulsar's client, on any broker.
    """

    why: str
    applies: Callable[[Sequence[str], str, str], bool]
    by_client: bool = False


def _is_kept_by_a_seek(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """Raw entries are trimmed here and not there, after a consumer sought and was closed."""
    sought = next((n for n, step in enumerate(steps) if step.startswith("seek c")), len(steps))
    is_trimmed = any(step in ("unload", "trim") for step in steps[sought:])
    is_raw = not steps[-1].startswith("receive")
    return is_raw and is_trimmed and (ours == "nothing" or theirs.endswith(f"  {ours}"))


def _is_of_a_queue(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """Returns whether the answer was in a reader's or consumer's queue when its topic was unloaded.

    Pulsar's client reads it again: it arrives twice, or not at all if it was trimmed since.
    """
    unloaded = steps.index("unload") if "unload" in steps else len(steps)
    is_trimmed = "trim" in steps[unloaded:]
    if steps[-1].startswith("has-more r"):
        return is_trimmed and (ours, theirs) == ("true", "false")
    if unloaded == len(steps) or not steps[-1].startswith(("receive", "read r")):
        return False
    mine, others = _messages(ours), _messages(theirs)
    is_cut_short = f"max={len(mine)}" in steps[-1].split()
    once = list(dict.fromkeys(others))
    if once == (mine[: len(once)] if is_cut_short and once != others else mine):
        return True
    kept = [message for message in mine if message in others]
    came = others[: len(kept)] if is_cut_short else others
    return is_trimmed and len(kept) < len(mine) and kept == came


def _begins_one_entry_before(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """A reader's start, inclusive, if its topic was unloaded before its first read.

    One message, or its batch; the messages of the queue follow again.
    """
    mine, others = _messages(ours), _messages(theirs)
    if not _is_unloaded(steps, " inclusive") or not others or others[0] in mine:
        return False
    first = re.split(r"[. ]", others[0])[0]
    rest = list(dropwhile(lambda message: re.split(r"[. ]", message)[0] == first, others))
    return rest == mine or _is_of_a_queue(steps, ours, "  ".join(rest) or "nothing")


def _begins_at_latest_anew(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """A reader at latest whose topic was unloaded before it had read anything."""
    misses = theirs in ("nothing", "false") or ours.endswith(f"  {theirs}")
    return _is_unloaded(steps, " from=latest") and misses and ours not in ("nothing", "false")


def _is_unloaded(steps: Sequence[str], beginning: str) -> bool:
    """Returns whether the last step uses a reader that began like this, and has lost its connection
    since.
    """
    name = steps[-1].removeprefix("read ").removeprefix("has-more ")[:2]
    for at, step in enumerate(steps):
        if step.startswith(f"reader {name}"):
            return step.endswith(beginning) and "unload" in steps[at:]
    return False


def _messages(answer: str) -> list[str]:
    return [] if answer == "nothing" else answer.split("  ")


def _is_active_later(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """Returns whether only time differs: Pulsar makes a Failover consumer active after a second,
    and a run may have ended by then.

    Messages that it removed do not arrive there, and renumbered ones have their new number.
    """
    opened = next((n for n, step in enumerate(steps) if "type=Failover" in step), len(steps))
    mine, others = _messages(ours), _messages(theirs)
    if any(step.startswith("strategy ") for step in steps):
        mine, others = [
            [re.sub(r"^(E\d+)\.\d+ ", r"\1 ", each) for each in some] for some in (mine, others)
        ]
    is_cut_short = f"max={len(mine)}" in steps[-1].split()
    left_out = len(mine) > len(others) or is_cut_short
    kept = [message for message in mine if message in others]
    return (
        "compact" in steps[opened:]
        and steps[-1].startswith("receive")
        and left_out
        and kept == others[: len(kept)]
        and (is_cut_short or kept == others)
    )


def _begins_at_latest(steps: Sequence[str]) -> bool:
    """Returns whether the last step reads from latest, inclusive, or from a reader that began
    there.

    Or that sought it: a reader that begins inclusive seeks inclusive.
    """
    kind, _, name = steps[-1].partition(" ")
    if kind not in ("read", "has-more"):
        return steps[-1].endswith(_LATEST)
    opened = [step for step in steps if step.startswith(f"reader {name[:2]}")]
    return any(step.endswith(_LATEST) for step in opened) or (
        f"seek {name[:2]} latest" in steps and any(step.endswith(" inclusive") for step in opened)
    )


def _is_denied_by_has_more(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """There is a message, but the ids that Pulsar's client compares say no.

    At latest, inclusive: the raw log's last entry is after the view's. At a message of a batch,
    inclusive: the broker's last id may be its entry's, without an index.
    """
    at_message = re.search(r"from=(E\d+)\.\d+ inclusive$", steps[-1])
    is_last = at_message is not None and all(
        message.startswith((f"{at_message[1]}.", f"{at_message[1]} "))
        for message in _messages(ours)
    )
    return (_begins_at_latest(steps) or is_last) and theirs in ("nothing", "false")


def _is_promised_in_vain(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """Pulsar's has-more is true for a reader that a run overtook, and then no message arrives.

    Two runs: the view that the reader began in may end before that of the second run.
    """
    verb, _, name = steps[-1].partition(" ")
    reader = f"reader {name[:2]} RC"
    opened = next((n for n, step in enumerate(steps) if step.startswith(reader)), 0)
    is_twice = "compact" in steps[:opened] and "compact" in steps[opened:]
    if (verb, ours, theirs) in (("has-more", "false", "true"), ("read", "nothing", "cannot")):
        return is_twice
    is_once = "compact" in steps and steps[-1].startswith("read r")
    return is_once and theirs == "cannot" and ours not in ("cannot", "refused")


def _is_found_late(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """Pulsar's Java client requests the last message at the first has-more, not when it opens."""
    return _begins_at_latest(steps) and ours != "nothing"


def _is_told_without_index(steps: Sequence[str], ours: str, theirs: str) -> bool:
    """Returns whether the rest of a batch is a single message, as after some strategies, and is
    then E0.

    Pulsar's Java client reports E0 for E0.0, too, so the other target treats it as E0.0.
    """
    return steps[-1].startswith("last-id") and f"{ours}.0" == theirs


KNOWN: tuple[Known, ...] = (
    Known(
        "NOT_EMULATED: with a manual clock, a Failover consumer is active at once", _is_active_later
    ),
    Known("NOT_EMULATED: has-more compares ids", _is_denied_by_has_more, True),
    Known("NOT_EMULATED: has-more compares ids", _is_promised_in_vain, True),
    Known("NOT_EMULATED: latest, inclusive, is found on opening", _is_found_late, True),
    Known("NOT_EMULATED: a seek leaves the entry itself in the backlog", _is_kept_by_a_seek, True),
    Known("NOT_EMULATED: begins one entry before its start", _begins_one_entry_before, True),
    Known("NOT_EMULATED: begins at latest anew", _begins_at_latest_anew, True),
    Known("CASES: the Java client says E0 of E0.0 in a last id", _is_told_without_index, True),
    Known("NOT_EMULATED: what a queue held across an unload", _is_of_a_queue, True),
)


def explanation(steps: Sequence[str], ours: str, theirs: str, is_one_broker: bool = False) -> str:
    """Returns the explanation; empty without one. `is_one_broker`: only the clients differ."""
    known = [each for each in KNOWN if each.by_client or not is_one_broker]
    return next((each.why for each in known if each.applies(steps, ours, theirs)), "")
