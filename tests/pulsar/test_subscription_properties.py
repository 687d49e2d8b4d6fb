"""Properties of subscriptions that a client of the binary protocol names."""

from __future__ import annotations

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import KeyValue
from tests.pulsar.recorded import RawClient, subscribe
from tests.support.broker_process import BrokerProcess


def test_a_consumers_first_properties_stay(broker: BrokerProcess, url: str, topic: str) -> None:
    """As in Pulsar: a new subscription gets them, and one that has none; others keep theirs."""
    with Admin(broker.url) as admin:

        def properties_after(**named: str) -> dict[str, str]:
            pairs = [KeyValue(key=name.encode(), value=named[name].encode()) for name in named]
            with RawClient(url) as client:
                client.send(subscribe(topic, subscription_properties=pairs))
                client.read_until(lambda answer: answer.type == pulsar_pb2.SUCCESS)
            return admin.subscription_properties(topic, "s")

        assert properties_after(a="1") == {"a": "1"}
        assert properties_after(b="2") == {"a": "1"}
        admin.update_subscription_properties(topic, "s", {})
        assert properties_after() == {}
        assert properties_after(c="3") == {"c": "3"}
        admin.unload(topic)
        assert admin.subscription_properties(topic, "s") == {"c": "3"}
