"""Arguments of Pulsar's Python client, and unknown ones: each gets an error text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledgerfold.broker.client import Client, ConsumerType
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.broker.client.messages.configs import ConsumerConfig, ProducerConfig
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.credentials import AuthenticationTLS
from ledgerfold.broker.client.streams.inbox import deadline_after
from ledgerfold.storage.errors import InvalidRequest, NotAllowed

# Those of its releases 3.4 to 3.10, also if not in every one.
PULSAR = {
    "__init__": """service_url authentication operation_timeout_seconds io_threads
        message_listener_threads concurrent_lookup_requests log_conf_file_path
        stats_interval_in_seconds use_tls tls_trust_certs_file_path tls_allow_insecure_connection
        tls_validate_hostname logger connection_timeout_ms listener_name
        tls_private_key_file_path tls_certificate_file_path""",
    "create_producer": """topic producer_name schema initial_sequence_id send_timeout_millis
        compression_type max_pending_messages max_pending_messages_across_partitions
        block_if_queue_full batching_enabled batching_max_messages
        batching_max_allowed_size_in_bytes batching_max_publish_delay_ms chunking_enabled
        message_routing_mode lazy_start_partitioned_producers properties batching_type
        encryption_key crypto_key_reader message_router""",
    "subscribe": """topic subscription_name consumer_type schema message_listener
        receiver_queue_size max_total_receiver_queue_size_across_partitions consumer_name
        unacked_messages_timeout_ms broker_consumer_stats_cache_time_ms
        negative_ack_redelivery_delay_ms is_read_compacted properties
        pattern_auto_discovery_period initial_position crypto_key_reader
        replicate_subscription_state_enabled max_pending_chunked_message
        auto_ack_oldest_chunked_message_on_queue_full start_message_id_inclusive
        batch_receive_policy key_shared_policy batch_index_ack_enabled regex_subscription_mode
        dead_letter_policy crypto_failure_action""",
    "create_reader": """topic start_message_id schema reader_listener receiver_queue_size
        reader_name subscription_role_prefix is_read_compacted crypto_key_reader
        start_message_id_inclusive crypto_failure_action""",
    "create_table_view": "topic subscription_name schema",
}
GIVEN: dict[str, tuple[str, ...]] = {
    "__init__": ("127.0.0.1:1",),
    "create_producer": ("t",),
    "subscribe": ("t", "s"),
    "create_reader": ("t",),
    "create_table_view": ("t",),
}


@pytest.fixture(params=["sync", "asyncio"])
def kind(request: pytest.FixtureRequest) -> type[Any]:
    return Client if request.param == "sync" else aio.Client


@pytest.fixture
def method(kind: type[Any]) -> Iterator[Callable[[str], Callable[..., Any]]]:
    """Returns the method of a client that is not connected, by name."""
    made = kind("127.0.0.1:1")

    def found(name: str) -> Callable[..., Any]:
        return kind if name == "__init__" else getattr(made, name)

    yield found
    if kind is Client:
        made.shutdown()


def others(kind: type[Any]) -> list[tuple[str, str]]:
    """Returns the arguments that Pulsar's methods have and these do not."""
    return [
        (name, each)
        for name, arguments in PULSAR.items()
        for each in arguments.split()
        if each not in inspect.signature(getattr(kind, name)).parameters
    ]


def test_each_unsupported_argument_of_pulsar_is_named(
    kind: type[Any], method: Callable[[str], Callable[..., Any]]
) -> None:
    """The error says that it is not emulated, before any call."""
    missing = others(kind)
    assert len(missing) > 20
    for name, argument in missing:
        with pytest.raises(NotAllowed, match=rf"are not emulated \({argument}=\)"):
            method(name)(*GIVEN[name], **{argument: object()})


@pytest.mark.parametrize("name", PULSAR)
def test_an_unknown_argument_is_rejected_with_a_hint(
    name: str, method: Callable[[str], Callable[..., Any]]
) -> None:
    """The error suggests a similar argument, or lists all."""
    with pytest.raises(InvalidRequest, match=r"has no argument nonsense\. Arguments: "):
        method(name)(*GIVEN[name], nonsense=1)
    with pytest.raises(InvalidRequest, match="pass others by keyword"):
        method(name)(*GIVEN[name], *"abcdef")
    if name == "subscribe":
        with pytest.raises(InvalidRequest, match="Did you mean consumer_name"):
            method(name)(*GIVEN[name], consumername="c")


def test_arguments_that_have_no_effect_are_accepted(kind: type[Any]) -> None:
    """A program may pass them."""
    client = kind("127.0.0.1:1", authentication=None, use_tls=False)
    if kind is Client:
        client.shutdown()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"tls_trust_certs_file_path": "ca.pem"}, "tls_trust_certs_file_path"),
        ({"tls_validate_hostname": False}, "tls_validate_hostname"),
        ({"authentication": AuthenticationTLS("c.pem", "k.pem")}, "AuthenticationTLS"),
    ],
)
def test_arguments_for_tls_without_tls_are_refused(
    kind: type[Any], arguments: dict[str, Any], named: str
) -> None:
    """They were ignored, and the connection was not protected. Tests used them only with TLS."""
    with pytest.raises(InvalidRequest, match=rf"^{named} has no effect without TLS.*\+ssl://"):
        kind("127.0.0.1:1", **arguments)


@pytest.mark.parametrize("topics", [["a", "b"], ("a",), re.compile("persistent://public/.*")])
def test_only_consumers_take_several_topics(topics: Any) -> None:
    """Only a consumer takes them."""
    with pytest.raises(InvalidRequest, match="only `subscribe` accepts it"):
        ProducerConfig(topics)
    assert ConsumerConfig(topics, "s").topic is topics
    with pytest.raises(InvalidRequest, match="a string, a list of strings or a pattern, not 7"):
        ConsumerConfig(7, "s")  # type: ignore[arg-type]


def test_enumerations_are_accepted_by_name() -> None:
    """In Pulsar's spelling or in another case; an unknown one gets the list."""
    for named in ("Shared", "shared", "SHARED"):
        choice: Any = named
        assert ConsumerConfig("t", "s", choice).consumer_type is ConsumerType.Shared
    for wrong in ("share", 1, None):
        with pytest.raises(
            InvalidRequest, match=r"\(Exclusive, Shared, Failover, KeyShared\), not"
        ):
            ConsumerConfig("t", "s", wrong)  # type: ignore[arg-type]
    compression: Any = "LZ4"
    assert ProducerConfig("t", compression_type=compression).compression_type.name == "LZ4"


def test_both_clients_have_the_same_arguments() -> None:
    """As `help` shows them; only batching has another default, and a listeners are for threads."""
    ours, theirs = (
        {name: inspect.signature(getattr(kind, name)).parameters for name in PULSAR}
        for kind in (Client, aio.Client)
    )
    assert ours["create_producer"]["batching_enabled"].default is False
    assert theirs["create_producer"]["batching_enabled"].default is True
    assert list(ours["subscribe"])[:4] == ["self", "topic", "subscription_name", "consumer_type"]
    differences = {each for name in PULSAR for each in ours[name].items() ^ theirs[name].items()}
    assert {name for name, _ in differences} == {
        "batching_enabled",
        "message_listener",
        "reader_listener",
        "is_pattern_topic",
    }


def test_a_missing_argument(method: Callable[[str], Callable[..., Any]]) -> None:
    with pytest.raises(
        TypeError, match=r"^subscribe\(\) missing a required argument: 'subscription_name'"
    ):
        method("subscribe")("t")


def test_an_argument_of_another_type(
    kind: type[Any], method: Callable[[str], Callable[..., Any]]
) -> None:
    """Each argument of each call names itself in a LedgerfoldError, never in a TypeError."""
    for name, given in GIVEN.items():
        parameters = list(inspect.signature(getattr(kind, name)).parameters)[1:]
        for argument in parameters[len(given) :]:
            # Tested below, and checked where it is used.
            if argument not in ("start_message_id", "strategy"):
                with pytest.raises(InvalidRequest, match=rf"(?i){argument.partition('_')[0]}"):
                    method(name)(*given, **{argument: object()})
        for at in range(len(given)):
            wrong = (*given[:at], 5, *given[at + 1 :])
            with pytest.raises(InvalidRequest, match=r"must be a string(, not|, a list)"):
                method(name)(*wrong)
    with pytest.raises(InvalidRequest, match="start_message_id must be a MessageId or None, not 5"):
        method("create_reader")("t", 5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"batching_max_messages": "x"}, "batching_max_messages must be a 64-bit integer, not 'x'"),
        ({"batching_max_messages": 2**63}, "must be a 64-bit integer, not 9223372036854775808"),
        ({"send_timeout_millis": -1}, "send_timeout_millis must be 0 or more"),
        ({"block_if_queue_full": 1}, "block_if_queue_full must be True or False, not 1"),
        ({"producer_name": b"p"}, "producer_name must be a string or None, not b'p'"),
    ],
)
def test_the_error_for_a_wrong_type(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        ProducerConfig("t", **wrong)


def test_limits_of_the_client_settings() -> None:
    for wrong in (-1, float("nan")):
        with pytest.raises(InvalidRequest, match="operation_timeout_seconds must be 0 or more"):
            Client("127.0.0.1:1", operation_timeout_seconds=wrong)
    with pytest.raises(InvalidRequest, match="starting_backoff_interval_ms must be 1 or more"):
        Client("127.0.0.1:1", starting_backoff_interval_ms=0)


def test_properties_of_a_consumer_are_strings() -> None:
    wrong: Any = {"a": 1}
    with pytest.raises(InvalidRequest, match="Property 'a': names and values must be strings"):
        ConsumerConfig("t", "s", properties=wrong)


def test_arguments_of_calls_on_a_client() -> None:
    wrong: Any = 5
    with (
        Client("127.0.0.1:1") as client,
        pytest.raises(InvalidRequest, match="A topic must be a string, not 5"),
    ):
        client.get_topic_partitions(wrong)
    for topics in ("\udcff", ["t", "\udcff"]):
        with pytest.raises(InvalidRequest, match="is not valid UTF-8"):
            ConsumerConfig(topics, "s")
    with pytest.raises(InvalidRequest, match="timeout_millis must be a number or None, not 'x'"):
        deadline_after("x")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="Not a serialized message id"):
        MessageId.deserialize("x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda admin: admin.stats(None), "topic must be a string, not None"),
        (lambda admin: admin.create_partitioned_topic("t", "3"), "partitions must be a 64-bit"),
        (lambda admin: admin.create_topic("t", kafka={"segment.ms": 5}), "strings to strings"),
        (lambda admin: admin.explain("t", message_id="3:7"), "must be a MessageId or None"),
        (lambda admin: admin.kafka.plan_cleaning("t", 5), "topics must be a string, not 5"),
        (lambda admin: admin.kafka.truncate_log("t", offset=1.5), "offset must be a 64-bit"),
        (lambda admin: admin.create_partitioned_topic("t", True), "partitions must be a 64-bit"),
        (lambda admin: admin.create_topic("\udcff"), r"topic '\\udcff' is not valid UTF-8"),
        (lambda admin: admin.set_compaction_strategy("x", 5, topic="t"), "with strings as keys"),
        (lambda admin: admin.trigger_compaction("t", strategy="x"), "a CompactionStrategy or None"),
        (lambda admin: admin.what_if("t", ["x"]), "a list, each a CompactionStrategy, not"),
        (lambda admin: admin.what_if("t", trials=[[1]]), "a list, each a mapping of strings to"),
        (lambda admin: admin.what_if("t", replays=5), "a list, each a ReplaySetting, not 5"),
    ],
)
def test_arguments_of_administrative_calls(call: Callable[[Any], Any], says: str) -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(InvalidRequest, match=says):
        call(admin)


def test_the_timeout_of_an_administration() -> None:
    with pytest.raises(InvalidRequest, match="timeout_seconds must be a number or None, not 'x'"):
        Admin("127.0.0.1:1", timeout_seconds="x")  # type: ignore[arg-type]
