"""kill -9 at every named step of a truncation of a Kafka topic's log, between processes.

Before its one synced write nothing has changed, after it the log is truncated. No unreferenced file
remains, existing files verify, and a repetition ends where the first attempt would have ended.
"""

from __future__ import annotations

import contextlib

import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import LedgerfoldError
from tests.conftest import MakeBroker
from tests.crash.test_kill_compaction import orphans
from tests.support.command_line import ledgerfold

pytestmark = pytest.mark.slow

BEFORE = ("truncate.unloaded", "truncate.before-batch")
AFTER = ("truncate.after-batch", "truncate.after-delete")


def read(url: str) -> list[int | None]:
    with Client(url) as client, client.create_reader("t", MessageId.earliest) as reader:
        return [message.offset() for message in reader]


@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_a_broker_killed_in_a_truncation(broker_process: MakeBroker, point: str) -> None:
    calm = ("--kafka-config", "log.cleaner.enable=false")
    broker = broker_process(*calm, crash_at=point)
    with Admin(broker.url) as admin, Client(broker.url) as client:
        admin.create_topic("t", kafka={"cleanup.policy": "compact"})
        with client.create_producer("t") as producer:
            for number in range(8):
                if number == 5:
                    admin.kafka.roll_segment("t")
                producer.send(b"v", partition_key=f"k{number}")
        admin.kafka.set_checkpoint("t", 5)
        with contextlib.suppress(LedgerfoldError):
            admin.kafka.truncate_log("t", 3)
        broker.wait()
    assert ledgerfold("verify", str(broker.data_dir)).code == 0
    broker.start()
    with Admin(broker.url) as admin:
        is_cut = point in AFTER
        assert read(broker.url) == list(range(3 if is_cut else 8))
        assert admin.kafka.describe_log("t").checkpoint == (0 if is_cut else 5)
        told = admin.kafka.truncate_log("t", 3)
        assert (told.log_end_offset, told.checkpoint) == (3, 0)
        assert read(broker.url) == [0, 1, 2]
    assert broker.stop() == 0
    assert orphans(broker.data_dir) == []
