"""The fields of the profiles, on the real broker and the real compactor (docs/PROFILES.md)."""

from __future__ import annotations

import pytest
from ledgerfold.v1.records_pb2 import Emulation, Policies

from broker.client import MessageId
from tests.conformance.scenario import Scenario
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


def profile(name: str, **fields: bool) -> Policies:
    return Policies(emulation=Emulation(profile=name, **fields))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("documented", ["E2 a=∅", "E3 b=2", "E4 c=1"]), ("pulsar-4", ["E3 b=2", "E4 c=1"])],
)
def test_rte_17_a_reader_that_a_run_overtakes(
    scenario: Scenario, name: str, expected: list[str]
) -> None:
    """It learns of the deletion from the raw ledgers, after a reconnect, too; or it misses it."""
    # Keeps the raw ledger over the unload, as it waits for readers that are connected only.
    scenario.admin.create_subscription(scenario.topic, "holds", MessageId.earliest)
    scenario.admin.update_policies(topic=scenario.topic, values=profile(name))
    scenario.publish("a=1 b=1")
    with scenario.client.create_reader(
        scenario.topic, MessageId.earliest, is_read_compacted=True, receiver_queue_size=1
    ) as reader:
        assert scenario.describe(reader.read_next(5_000)) == "E0 a=1"
        # E1 fills the queue: the broker sends no more before it is taken, after the run.
        wait_until(lambda: not reader._inbox.is_empty, "E1 is in the queue")
        scenario.publish("a=∅ b=2")
        scenario.compact()
        scenario.admin.unload(scenario.topic)
        scenario.publish("c=1")
        assert [scenario.describe(each) for each in reader] == ["E1 b=1", *expected]
