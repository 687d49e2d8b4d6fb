"""A short round of torture. `scripts/torture` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.report import Verdict, table
from tests.torture.round import Round
from tests.torture.settings import TortureSettings
from tests.torture.victims import BROKER

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.last]

KILLS_MIN = 3
SHORT = TortureSettings(
    minutes=0.6,
    seed=1,
    broker_kills_min=KILLS_MIN,
    kills_per_minute=14,
    fillings_per_minute=2.5,
)
# Less than on any machine: a round in which nothing happens shows nothing.
MESSAGES_MIN = 2_000


@pytest.mark.timeout(600)
def test_a_short_round(tmp_path: Path) -> None:
    """Nothing is lost, stored twice or left hanging, and all is well at the end."""
    with Round(SHORT, tmp_path, say=print) as torture:
        outcome = torture.run()
    assert not outcome.wrong, table(Verdict(outcome.tally, outcome.books))
    assert outcome.tally.kills[BROKER] >= KILLS_MIN
    assert outcome.tally.passes > 0
    assert outcome.books.totals()[1] >= MESSAGES_MIN
