"""What argparse does not do by itself: the parser of every verb.

* What begins with a minus and a digit is a value, and a wrong one may be (`clock advance -5s`): no
  option looks so. argparse takes it for an option that it does not know.
* A list behind a name may stand in pieces between the options, and behind them: `set-emulation
  orders --profile pulsar-4 exact_backlog=true`. argparse ends it at the first option.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """Subparsers are of this class, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"-[0-9]")
        self._is_intermixing = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        has_list = any(action.nargs == "*" for action in self._get_positional_actions())
        if self._is_intermixing or not has_list:
            return super().parse_known_args(args, namespace)
        # This calls parse_known_args in its turn.
        self._is_intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixing = False
