"""Properties of subscriptions that a client of the binary protocol names."""

from __future__ import annotations

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import KeyValue
from tests.pulsar.recorded import RawClient, subscribe
from tests.support.broker_process import BrokerProcess


def test_a_consumers_properties_are_those_of_a_new_subscription(
    broker: BrokerProcess, url: str, topic: str
) -> None:
    """As in Pulsar: an existing subscription keeps its own, even if it has none."""
    with Admin(broker.url) as admin:

        def properties_after(**named: str) -> dict[str, str]:
            pairs = [KeyValue(key=name.encode(), value=named[name].encode()) for name in named]
            with RawClient(url) as client:
                client.send(subscribe(topic, subscription_properties=pairs))
                client.read_until(lambda answer: answer.type == pulsar_pb2.SUCCESS)
            return admin.subscription_properties(topic, "s")

        assert properties_after(a="1") == {"a": "1"}
        assert properties_after(b="2") == {"a": "1"}
        admin.unload(topic)
        assert properties_after(c="3") == {"a": "1"}
        admin.update_subscription_properties(topic, "s", {})
        assert properties_after(d="4") == {}
