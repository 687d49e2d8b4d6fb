"""The process of a trial (sandbox.py): loads a user-defined strategy, asks it, and describes it.

It reads a line of JSON from standard input (`name`, `settings`, `timeout_seconds`, `memory_bytes`),
and writes one to standard output: `why` the strategy is unusable, or the fields of its Own. If the
input has `messages`, of one key, the output has the strategy's explanations for them (samples.py).
The strategy's own output goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ledgerfold.compactor.strategies.watch import Exceeded, Limits, Watch
from ledgerfold.compactor.user_strategies.own import STRATEGIC, at, kind_of
from ledgerfold.compactor.user_strategies.samples import (
    ask_columns,
    ask_strategic,
    explain_choices,
    messages_of,
)
from ledgerfold.storage.errors import InvalidStrategy, StrategyFailed
from ledgerfold.strategies.loading import RAISED, Loaded, describe_error, load

# The limit of an error text, which may contain text from user code.
_WHY_CHARACTERS_MAX = 1000


def run_trial(
    name: str,
    settings: dict[str, str],
    limits: Limits,
    messages: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Returns the result of a trial, or the explanations for `messages`, for standard output."""
    watch = Watch(limits)
    try:
        with watch.held():
            with watch.asking("when it was loaded"):
                loaded = load(name, settings)
            if messages is None:
                return _described(name, loaded, watch)
            return _choices(loaded.strategy, watch, messages)
    except InvalidStrategy as error:
        why = error.why
    except StrategyFailed as error:
        why = error.why
    except Exceeded as error:
        why = f"{error}, {at(watch.last)}"
    except RAISED:
        raise
    except BaseException as error:  # a type that only user code raises
        why = f"{describe_error(error)}, {at(watch.last)}"
    return {"why": why[:_WHY_CHARACTERS_MAX]}


def _choices(strategy: Any, watch: Watch, messages: list[dict[str, Any]]) -> dict[str, Any]:
    if kind_of(strategy) != STRATEGIC:
        return {"choices": []}
    is_value = [bool(each["value"]) for each in messages]
    return explain_choices(strategy, messages_of(strategy, messages), is_value, watch)


def _described(name: str, loaded: Loaded, watch: Watch) -> dict[str, Any]:
    """Describes a strategy by the fields of its Own, after asking it about samples."""
    try:
        kind = kind_of(loaded.strategy)
    except TypeError as error:
        raise InvalidStrategy(name, str(error)) from error
    description: dict[str, Any] = {"version": loaded.version, "source": loaded.source, "kind": kind}
    if kind == STRATEGIC:
        return description | {"reads": ask_strategic(name, loaded.strategy, watch)}
    ask_columns(name, loaded.strategy, watch)
    return description | {"reads_event_times": loaded.strategy.reads_event_times}


def main() -> None:
    requested = json.loads(sys.stdin.readline())
    answers = os.dup(1)
    os.dup2(2, 1)
    limits = Limits(requested["timeout_seconds"], requested["memory_bytes"])
    result = run_trial(requested["name"], requested["settings"], limits, requested.get("messages"))
    os.write(answers, json.dumps(result).encode() + b"\n")
    # The strategy may have started threads that do not end.
    os._exit(0)


if __name__ == "__main__":
    main()
