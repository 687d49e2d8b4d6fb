"""Access modes and backlog quotas, with Pulsar's client, this package's, and bare frames."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.pulsar.frames import encode
from ledgerfold.storage.errors import BacklogQuotaExceeded, ProducerBusy
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandProducerSuccess
from ledgerfold.v1.records_pb2 import BacklogQuota, Policies
from tests.pulsar.recorded import RawClient, metadata, producer, send
from tests.pulsar.test_pulsar_producers import read_all
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_S, wait_until

MODES = pulsar.ProducerAccessMode
EXCLUSIVE, WAIT = 1, 2


def is_refused(native: Client, topic: str) -> bool:
    try:
        native.create_producer(topic).close()
    except ProducerBusy:
        return True
    return False


def test_exclusive_producers_of_both_protocols_compete(
    broker: BrokerProcess, client: pulsar.Client, native: Client, topic: str
) -> None:
    only = client.create_producer(topic, access_mode=MODES.Exclusive)
    only.send(b"1")
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=MODES.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    with pytest.raises(ProducerBusy, match="exclusive access"):
        native.create_producer(topic)
    taking = client.create_producer(topic, access_mode=MODES.ExclusiveWithFencing)
    with pytest.raises(pulsar.ProducerFenced):
        only.send(b"fenced out")
    taking.send(b"2")
    taking.close()
    shared = native.create_producer(topic)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.create_producer, topic, access_mode=MODES.WaitForExclusive)
        wait_until(lambda: is_refused(native, topic), "a producer waits")
        with Admin(broker.url) as admin:
            publishers = admin.stats(topic)["publishers"]
        assert [each["accessMode"] for each in publishers] == ["Shared"]
        shared.close()
        producer = waiting.result(WAIT_S)
    producer.send(b"3")
    assert [each.data() for each in read_all(client, topic)] == [b"1", b"2", b"3"]


def success(client: RawClient) -> CommandProducerSuccess:
    answer = client.read()
    assert answer.type == pulsar_pb2.PRODUCER_SUCCESS, answer
    return answer.producer_success


def test_answers_have_the_epoch(broker: BrokerProcess, topic: str) -> None:
    url = str(broker.ready["pulsar"])
    with RawClient(url) as first, RawClient(url) as second:
        first.send(producer(topic, producer_access_mode=EXCLUSIVE))
        answer = success(first)
        assert (answer.topic_epoch, answer.producer_ready) == (0, True)
        first.send(send(0), metadata(0))
        assert first.read().type == pulsar_pb2.SEND_RECEIPT
        second.send(producer(topic, producer_access_mode=WAIT))
        queued = success(second)
        assert not queued.producer_ready
        assert not queued.HasField("topic_epoch")
        closing = pulsar_pb2.CommandCloseProducer(producer_id=1, request_id=9)
        first.send(BaseCommand(type=pulsar_pb2.CLOSE_PRODUCER, close_producer=closing))
        assert first.read().type == pulsar_pb2.SUCCESS
        ready = success(second)
        assert (ready.topic_epoch, ready.producer_ready) == (1, True)
        assert ready.producer_name == queued.producer_name
        # Another producer had access meanwhile.
        first.send(producer(topic, producer_access_mode=EXCLUSIVE, topic_epoch=0, epoch=1))
        assert first.read().error.error == pulsar_pb2.PRODUCER_FENCED
        first.send(producer(topic, producer_access_mode=7))
        assert first.read().error.error == pulsar_pb2.NOT_ALLOWED
        # A producer that reconnects before the broker knows that its connection is lost.
        again = {"producer_name": ready.producer_name, "epoch": 1, "topic_epoch": 1}
        first.send(producer(topic, producer_access_mode=WAIT, **again))
        assert success(first).topic_epoch == 1


def test_a_waiting_producer_may_be_closed(broker: BrokerProcess, topic: str) -> None:
    url = str(broker.ready["pulsar"])
    with RawClient(url) as first, RawClient(url) as second:
        first.send(producer(topic))
        success(first)
        second.send(producer(topic, producer_access_mode=WAIT))
        assert not success(second).producer_ready
        closing = pulsar_pb2.CommandCloseProducer(producer_id=1, request_id=9)
        second.send(BaseCommand(type=pulsar_pb2.CLOSE_PRODUCER, close_producer=closing))
        assert {second.read().type, second.read().type} == {
            pulsar_pb2.SUCCESS,
            pulsar_pb2.ERROR,
        }
        second.send(producer(topic))
        success(second)


def test_a_producer_is_closed_before_it_waits(broker: BrokerProcess, topic: str) -> None:
    """Its initial subscription is being written when CLOSE_PRODUCER arrives."""
    url = str(broker.ready["pulsar"])
    with RawClient(url) as first, RawClient(url) as second:
        first.send(producer(topic))
        success(first)
        early = producer(topic, producer_access_mode=WAIT, initial_subscription_name="s")
        closing = pulsar_pb2.CommandCloseProducer(producer_id=1, request_id=9)
        close = BaseCommand(type=pulsar_pb2.CLOSE_PRODUCER, close_producer=closing)
        second.socket.sendall(encode(early) + encode(close))
        assert second.read().type == pulsar_pb2.SUCCESS
        assert second.read().type == pulsar_pb2.ERROR
        # No producer waits.
        second.send(producer(topic))
        success(second)


def test_a_backlog_above_its_quota_refuses_producers(
    broker: BrokerProcess, client: pulsar.Client, native: Client, topic: str
) -> None:
    client.subscribe(topic, "slow").close()
    client.create_producer(topic).send(b"v" * 1000)
    quota = BacklogQuota(limit_bytes=500, policy="BACKLOG_POLICY_PRODUCER_EXCEPTION")
    with Admin(broker.url) as admin:
        admin.update_policies(topic=topic, values=Policies(backlog_size_quota=quota))
        with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
            client.create_producer(topic)
        with pytest.raises(BacklogQuotaExceeded, match="exceeds its quota"):
            native.create_producer(topic)
        admin.clear_backlog(topic, "slow")
    client.create_producer(topic).close()
    native.create_producer(topic).close()
