"""Cases TVW of the Pulsar catalogue, on the real broker and the real compactor.

TVW-04, -06, -07, -08 and -10 are in tests/unit/client/test_table_view.py and test_table.py; TVW-12
needs encryption, which is the client's own business here.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.client import TableView
from tests.conformance.scenario import Scenario

pytestmark = pytest.mark.spark


def text(view: TableView) -> dict[str, str]:
    view.refresh()
    return {key: value.decode() for key, value in view.snapshot().items()}


def test_tvw_01_before_and_after_creation(scenario: Scenario) -> None:
    """Ten keys before, ten after: twenty entries with their last values."""
    scenario.publish(" ".join(f"k{n}=v{n}" for n in range(10)))
    view = scenario.client.create_table_view(scenario.topic)
    assert len(view) == 10
    scenario.publish(" ".join(f"k{n}=v{n}" for n in range(10, 20)))
    assert text(view) == {f"k{n}": f"v{n}" for n in range(20)}


def test_tvw_02_a_null_value_removes_its_key(scenario: Scenario) -> None:
    """From the live view, from a new one, and from one over compacted data."""
    scenario.publish("key1=v1 key2=v2")
    live = scenario.client.create_table_view(scenario.topic)
    assert len(live) == 2
    scenario.publish("key1=∅")
    assert text(live) == {"key2": "v2"}
    assert text(scenario.client.create_table_view(scenario.topic)) == {"key2": "v2"}
    scenario.compact()
    assert text(scenario.client.create_table_view(scenario.topic)) == {"key2": "v2"}
    assert text(live) == {"key2": "v2"}


def test_tvw_14_the_raw_log_is_gone(scenario: Scenario) -> None:
    """A thousand updates of ten keys, compacted, trimmed, reloaded: ten keys, their last values."""
    updates = [f"k{n % 10}={n}" for n in range(1000)]
    scenario.publish(f"[{' '.join(updates)}]")
    live = scenario.client.create_table_view(scenario.topic)
    scenario.compact()
    scenario.admin.unload(scenario.topic)
    assert scenario.admin.internal_stats(scenario.topic)["numberOfEntries"] == 0
    wanted = {f"k{n}": str(990 + n) for n in range(10)}
    assert text(scenario.client.create_table_view(scenario.topic)) == wanted
    assert text(live) == wanted


def test_a_view_lives_through_compactions(scenario: Scenario) -> None:
    """Runs commit under it, and every update is heard once, removals included."""
    view = scenario.client.create_table_view(scenario.topic)
    heard: list[tuple[str, Any]] = []
    view.listen(lambda key, value: heard.append((key, value)))
    for round_ in range(3):
        scenario.publish(f"[a={round_} b={round_}] c={round_} b=∅")
        scenario.compact()
    assert text(view) == {"a": "2", "c": "2"}
    assert heard == [
        update for n in (b"0", b"1", b"2") for update in (("a", n), ("b", n), ("c", n), ("b", None))
    ]
