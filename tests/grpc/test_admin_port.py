"""The admin REST API of a broker process: the same topics as gRPC, restarts, and shutdown."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.process
SERVED = ("--admin-listen", "127.0.0.1:0")


def ask(broker: BrokerProcess, method: str, path: str, body: Any = None) -> Any:
    """Returns the parsed answer, None for an empty one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{broker.ready['admin']}/admin/v2{path}",
        data,
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def test_both_ports_have_the_same_topics(broker_process: MakeBroker) -> None:
    broker = broker_process(*SERVED)
    topic = "/persistent/shop/eu/orders"
    ask(broker, "PUT", "/tenants/shop", {"allowedClusters": ["standalone"]})
    ask(broker, "PUT", "/namespaces/shop/eu")
    ask(broker, "PUT", "/namespaces/shop/eu/compactionThreshold", 77)
    ask(broker, "PUT", topic)
    ask(broker, "PUT", f"{topic}/subscription/audit")
    with Client(broker.url) as client, client.create_producer("shop/eu/orders") as producer:
        producer.send(b"one", partition_key="k")
    with Admin(broker.url) as admin:
        assert admin.list_topics("shop/eu") == ["persistent://shop/eu/orders"]
        assert admin.list_subscriptions("shop/eu/orders") == ["audit", "__compaction"]
        assert admin.policies(namespace="shop/eu").compaction_threshold_bytes == 77
    assert ask(broker, "GET", f"{topic}/stats")["msgInCounter"] == 1
    broker.kill()
    broker.start()
    assert ask(broker, "GET", "/tenants") == ["public", "shop"]
    assert ask(broker, "GET", "/namespaces/shop/eu/compactionThreshold") == 77
    assert ask(broker, "GET", f"{topic}/stats")["subscriptions"]["audit"]["msgBacklog"] == 1


def test_an_idle_client_does_not_delay_the_shutdown(broker_process: MakeBroker) -> None:
    broker = broker_process(*SERVED)
    host, _, port = broker.ready["admin"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as idle:
        idle.sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"standalone" in idle.recv(4096)
        assert broker.stop() == 0
