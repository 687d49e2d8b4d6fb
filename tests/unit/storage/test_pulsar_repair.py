"""Entries of Pulsar clients in a store: their repair, and who may publish them."""

from __future__ import annotations

import pytest

from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import InvalidRequest, UnknownFeatures
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import FEATURES, PULSAR_ENTRIES, STORE_KEY
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.support.offline import Offline
from tests.support.pulsar_entries import batch_entry, message


async def publish(lab: BrokerLab, *, by_pulsar: bool) -> None:
    topic = await lab.broker.topic(TOPIC, to_write=True)
    producer = await topic.attach_producer("p", is_pulsar_client=by_pulsar)
    try:
        sent = batch_entry([message(b"1", "a"), message(b"2", "b")])
        producer.append_all([sent])
        producer.finish()
        while await producer.receipts():
            pass
    finally:
        producer.detach()


def test_a_rebuilt_store_record_names_the_feature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = BrokerLab()
    lab.run(publish(lab, by_pulsar=True))
    assert [each.message.value for each in lab.read(EARLIEST, read_compacted=False)] == [b"1", b"2"]
    lab._drop()
    lab._pairs.write({STORE_KEY: b"\x01\xff\xff\xff"}, ())
    offline = Offline(DATA, lab._pairs, lab.files)
    offline.repair()
    assert offline.damage() == []
    metadata = MetadataStore(lab._pairs)
    store = metadata.store()
    assert store is not None
    assert PULSAR_ENTRIES in store.features
    monkeypatch.setattr("ledgerfold.storage.records.FEATURES", FEATURES - {PULSAR_ENTRIES})
    with pytest.raises(UnknownFeatures, match="'pulsar-entries'"):
        metadata.store()


def test_other_clients_may_not_publish_pulsar_entries() -> None:
    """The broker takes metadata for those that a client of Pulsar's protocol sent."""
    lab = BrokerLab()
    with pytest.raises(InvalidRequest, match=r"only over Pulsar's protocol"):
        lab.run(publish(lab, by_pulsar=False))
    lab.stop()
