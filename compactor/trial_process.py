"""The process that tries a strategy of one's own (trial.py): loads it, asks it, says what it is.

A line of JSON comes on standard input (`name`, `settings`, `timeout_seconds`, `memory_bytes`), one
goes to standard output: `why` it will not do, or what an Own tells of it. Whatever the strategy
prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ledgerfold.compactor.samples import ask_columns, ask_strategic
from ledgerfold.compactor.strategies.own import STRATEGIC, at, kind_of
from ledgerfold.compactor.strategies.watch import Exceeded, Limits, Watch
from ledgerfold.storage.errors import InvalidStrategy, StrategyFailed
from ledgerfold.strategies.loading import RAISED, load, said

# Of a sentence that holds words of somebody's code.
_WHY_CHARACTERS_MAX = 1000


def tried(name: str, settings: dict[str, str], limits: Limits) -> dict[str, Any]:
    """What goes to standard output."""
    watch = Watch(limits)
    try:
        with watch.held():
            return _tried(name, settings, watch)
    except InvalidStrategy as error:
        why = error.why
    except StrategyFailed as error:
        why = error.why
    except Exceeded as error:
        why = f"{error}, {at(watch.last)}"
    except RAISED:
        raise
    except BaseException as error:  # of a kind that only somebody's code has
        why = f"{said(error)}, {at(watch.last)}"
    return {"why": why[:_WHY_CHARACTERS_MAX]}


def _tried(name: str, settings: dict[str, str], watch: Watch) -> dict[str, Any]:
    with watch.asking("when it was loaded"):
        loaded = load(name, settings)
    try:
        kind = kind_of(loaded.strategy)
    except TypeError as error:
        raise InvalidStrategy(name, str(error)) from error
    found: dict[str, Any] = {"version": loaded.version, "source": loaded.source, "kind": kind}
    if kind == STRATEGIC:
        return found | {"reads": ask_strategic(name, loaded.strategy, watch)}
    ask_columns(name, loaded.strategy, watch)
    return found | {"reads_event_times": loaded.strategy.reads_event_times}


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    answers = os.dup(1)
    os.dup2(2, 1)
    limits = Limits(asked["timeout_seconds"], asked["memory_bytes"])
    found = tried(asked["name"], asked["settings"], limits)
    os.write(answers, json.dumps(found).encode() + b"\n")
    # It may have started threads that do not end.
    os._exit(0)


if __name__ == "__main__":
    main()
