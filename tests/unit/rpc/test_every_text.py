"""Hostile values in every text of every request.

It is accepted, and then all listings and counts work; or it is refused with a Ledgerfold error that
says why and repeats little of it. The walk is over the descriptors: a field that is added is
walked, too.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from prometheus_client.parser import text_string_to_metric_families

from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.metrics.readings import MetricsReader
from ledgerfold.broker.metrics.text import parts
from ledgerfold.broker.rpc.stream import EOF
from ledgerfold.storage.errors import ServiceError
from ledgerfold.v1 import admin_pb2, kafka_pb2
from ledgerfold.v1.admin_pb2 import FAULT_KIND_DELAY, FAULT_OPERATION_READ
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message as Published
from tests.support.odd_texts import Path, check_refusal, odd_texts, request_with, text_paths
from tests.support.property_tests import stride
from tests.support.served_lab import METHODS, ServedLab, end_of, path_of, write

KAFKA_TOPIC = "persistent://public/default/kafka"
DIVIDED = "persistent://public/default/divided"
WALKS = [(method, path) for method in METHODS.values() for path in text_paths(method.input_type)]
# Longer texts are always refused.
LONG = 100_000
NAMESPACES = itertools.cycle(["{}/default", "public/{}"])
TOPICS = itertools.cycle(["persistent://{}/default/t", "public/{}/t", "public/default/{}"])
_fresh = itertools.count()


def fill(message: Message) -> None:
    """Fills in the message's required fields so that only one text in it is odd."""
    names = message.DESCRIPTOR.fields_by_name
    kind = message.DESCRIPTOR.name
    told: Any = message
    if "topic" in names and names["topic"].containing_oneof is None:
        of_kafka = message.DESCRIPTOR.file is kafka_pb2.DESCRIPTOR
        told.topic = KAFKA_TOPIC if of_kafka else TOPIC
        if kind.startswith("Create") and "Subscription" not in kind:
            told.topic = f"fresh-{next(_fresh)}"
        elif "Partitioned" in kind:
            told.topic = DIVIDED
    if "subscription" in names and kind not in ("SubscribeOpen", "CreateSubscriptionRequest"):
        told.subscription = "s"
    elif "subscription" in names:
        told.subscription = f"s{next(_fresh)}"
    match kind:
        case "SubscribeOpen":
            told.durable = True
        case "CreatePartitionedTopicRequest" | "UpdatePartitionedTopicRequest":
            told.partitions = 2
        case "PolicyScope":
            told.topic = TOPIC
        case "UpdatePoliciesRequest":
            told.scope.topic = TOPIC
        case "CompactionStrategy":
            told.name = "header-version"
        case "ExplainRequest":
            told.null_key = True
        case "ResetCursorRequest":
            told.start.earliest = True
        case "SkipMessagesRequest":
            told.entries = 1
        case "PeekMessagesRequest":
            told.position = told.messages = 1
        case "ExamineMessagesRequest":
            told.position = 1
        case "Fault":
            told.kind, told.operation = FAULT_KIND_DELAY, FAULT_OPERATION_READ
            told.delay_ms = 1


@pytest.fixture(scope="module")
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab(Faults())
    lab.publish([([Published(b"a", b"1")], False)])
    lab.run(lab.broker.create_topic(KAFKA_TOPIC, {"cleanup.policy": "compact"}))
    lab.run(lab.broker.create_partitioned_topic(DIVIDED, 2))
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def served(lab: BrokerLab) -> Iterator[ServedLab]:
    served = ServedLab(lab)
    yield served
    served.close()


@pytest.mark.parametrize(
    ("method", "path"), WALKS, ids=[f"{method.name} {'.'.join(path)}" for method, path in WALKS]
)
def test_hostile_text_in_every_field(
    lab: BrokerLab,
    served: ServedLab,
    caplog: pytest.LogCaptureFixture,
    method: MethodDescriptor,
    path: Path,
) -> None:
    """In the place of one field, odd texts; and as a part of a topic's name."""
    kind, number = GetMessageClass(method.input_type), WALKS.index((method, path))
    assert lab.faults is not None
    lab.faults.clear()
    for name, text in odd_texts(number):
        for form in _forms(path, text):
            where = f"{method.name}.{'.'.join(path)}: {name}"
            request = request_with(kind, path, form, fill)
            try:
                served.run(_ask(served, method, request))
            except grpc.RpcError as error:
                found = check_refusal(error, form, where)
                assert not isinstance(found, ServiceError), where
    if not number % stride(5):
        served.run(_look_around(lab, served))
    # Closed loops of other tests may log during this one.
    own = [each for each in caplog.records if each.name.startswith("ledgerfold")]
    assert not [each for each in own if each.exc_info or each.levelno >= logging.ERROR]


def _forms(path: Path, text: str) -> list[str]:
    if path[-1] not in ("topic", "topics", "namespace") or len(text) > LONG:
        return [text]
    # Each field gets all of the forms in turn, each text some of them.
    return [text, next(NAMESPACES if path[-1] == "namespace" else TOPICS).format(text)]


async def _ask(served: ServedLab, method: MethodDescriptor, request: Message) -> None:
    """Makes the call to its end, of any kind. Raises grpc.RpcError."""
    path, data = path_of(method), request.SerializeToString()
    if method.client_streaming:
        call = served.channel.stream_stream(path)()
        await write(call, data)
        if await call.read() is not EOF:
            # It is connected, and shown.
            await served.asking(admin_pb2.GetTopicStatsRequest(topic=TOPIC))
            await call.done_writing()
        if (error := await end_of(call)) is not None:
            raise error
    elif method.server_streaming:
        async for _ in served.channel.unary_stream(path)(data):
            continue
    else:
        await served.asking(request)


async def _look_around(lab: BrokerLab, served: ServedLab) -> None:
    """All that lists, counts and tells."""
    for request in (
        admin_pb2.GetTopicStatsRequest(topic=TOPIC),
        admin_pb2.GetTopicStatsRequest(topic=KAFKA_TOPIC),
        admin_pb2.GetTopicInternalStatsRequest(topic=TOPIC),
        admin_pb2.GetTopicInternalStatsRequest(topic=KAFKA_TOPIC),
        admin_pb2.GetPartitionedTopicStatsRequest(topic=DIVIDED, per_partition=True),
        admin_pb2.ListTopicsRequest(),
        admin_pb2.ListPartitionedTopicsRequest(),
        admin_pb2.ListSubscriptionsRequest(topic=TOPIC),
        admin_pb2.ListRunsRequest(),
        admin_pb2.GetBrokerInfoRequest(),
        kafka_pb2.GetCleanerRequest(),
        kafka_pb2.DescribeLogRequest(topic=KAFKA_TOPIC),
    ):
        await served.asking(request)
    text = "".join(parts(await MetricsReader(lab.broker).read()))
    assert any(text_string_to_metric_families(text))


def test_every_text_field_is_found() -> None:
    """Nested, repeated, in maps and in oneofs."""
    walked = {(method.name, ".".join(path)) for method, path in WALKS}
    assert {
        ("Subscribe", "open.properties.key"),
        ("Subscribe", "open.topic"),
        ("UpdatePolicies", "set.compaction_strategy.settings.value"),
        ("UpdatePolicies", "scope.namespace"),
        ("UpdatePolicies", "remove"),
        ("WhatIf", "trials.config.key"),
        ("WhatIf", "strategies.name"),
        ("SetCleaning", "uncleanable_reason"),
    } <= walked
