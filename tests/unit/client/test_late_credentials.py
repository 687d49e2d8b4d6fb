"""Credentials that fail for a while: what is open waits for them, what opens does not.

Streams had been broken by every error of a connection, but never by one of the client's own code,
nor by a refusal that ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from ledgerfold.broker.client import (
    AuthenticationToken,
    Client,
    ConsumerDeadLetterPolicy,
    ConsumerType,
    InitialPosition,
    MessageId,
    Result,
)
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.broker.client.streams.credentials import Authentication, Metadata
from ledgerfold.storage.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    InvalidRequest,
    Timeout,
)
from tests.support.fake_broker import WATCHFUL, FakeBroker, ThreadedFakeBroker
from tests.support.waiting import WAIT_MS, WAIT_S, wait_until


class TokenService:
    """A function of tokens, which fails while it has a failure."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.answer: Any = "a.b.c"
        self.failures = 0

    def __call__(self) -> str:
        if self.failure is not None or self.answer != "a.b.c":
            self.failures += 1
        if self.failure is not None:
            raise self.failure
        return self.answer  # type: ignore[no-any-return]


@pytest.fixture
def tokens() -> TokenService:
    return TokenService()


def options_of(tokens: TokenService) -> dict[str, Any]:
    return WATCHFUL | {"authentication": AuthenticationToken(tokens)}


@pytest.fixture
def client(broker: ThreadedFakeBroker, tokens: TokenService) -> Iterator[Client]:
    client = Client(broker.address, **options_of(tokens))
    yield client
    client.shutdown()


class RefusingServer:
    """A broker that refuses new streams, and counts them."""

    def __init__(self, broker: FakeBroker) -> None:
        self._service, self._before = broker.service, len(broker.service.opened)
        self._service.refusal = AuthenticationFailed("The token has expired.")

    @property
    def refused(self) -> int:
        return len(self._service.opened) - self._before

    def recover(self) -> None:
        self._service.refusal = None


def fail_by_error(tokens: TokenService) -> None:
    tokens.failure = OSError("the token service does not answer")


def fail_by_own_error(tokens: TokenService) -> None:
    tokens.failure = InvalidRequest("the token service has another client")


def fail_by_exit(tokens: TokenService) -> None:
    """No function of tokens had called sys.exit(), which ended the thread of all clients."""
    tokens.failure = SystemExit(3)


def fail_by_bytes(tokens: TokenService) -> None:
    tokens.answer = b"a.b.c"


def fail_by_line_end(tokens: TokenService) -> None:
    tokens.answer = "a.b.c\n"


FAILURES = (fail_by_error, fail_by_own_error, fail_by_exit, fail_by_bytes, fail_by_line_end)


def recover(tokens: TokenService) -> None:
    tokens.failure, tokens.answer = None, "a.b.c"


@pytest.mark.parametrize("fail", FAILURES)
def test_open_streams_survive_a_function_that_fails(
    broker: ThreadedFakeBroker, client: Client, tokens: TokenService, fail: Callable[..., None]
) -> None:
    producer = client.create_producer("t")
    consumer = client.subscribe("t", "s", ConsumerType.Shared)
    reader = client.create_reader("t", MessageId.earliest)
    view = client.create_table_view("t")
    fail(tokens)
    broker.stop_now()
    broker.start_now()
    results: list[str] = []
    producer.send_async(b"1", lambda result, _: results.append(result.name), partition_key="k")
    # Each of the four was refused twice, or one of them more often.
    wait_until(lambda: tokens.failures >= 8, "attempts")
    assert results == []
    recover(tokens)
    assert reader.read_next(timeout_millis=WAIT_MS).data() == b"1"
    assert consumer.receive(timeout_millis=WAIT_MS).data() == b"1"
    wait_until(lambda: view.get("k") == b"1", "the view")
    assert results == ["Ok"]


def test_open_streams_survive_a_token_that_is_renewed_late(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Messages wait for it, within their send timeout."""
    patient = client.create_producer("t")
    hasty = client.create_producer("t", send_timeout_millis=30)
    consumer = client.subscribe("t", "s")
    broker.stop_now()
    server = RefusingServer(broker)
    broker.start_now()
    results: list[str] = []
    patient.send_async(b"1", lambda result, _: results.append(result.name))
    with pytest.raises(Timeout):
        hasty.send(b"2")
    wait_until(lambda: server.refused >= 6, "attempts")
    assert results == []
    server.recover()
    assert consumer.receive(timeout_millis=WAIT_MS).data() == b"1"

    def is_stored() -> bool:
        with suppress(Timeout):
            return hasty.send(b"3").entry_id() >= 0
        return False

    wait_until(is_stored, "a receipt within the send timeout")
    assert results == ["Ok"]


def test_a_missing_permission_ends_an_open_stream(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """As in Pulsar: only an administrator can change that."""
    producer = client.create_producer("t")
    broker.service.refusal = AuthorizationFailed("no grant")
    broker.stop_now()
    results: list[Result] = []
    producer.send_async(b"1", lambda result, _: results.append(result))
    broker.start_now()
    wait_until(lambda: results == [Result.AuthorizationError], "the result")
    with pytest.raises(AuthorizationFailed):
        producer.send(b"1")


@pytest.mark.parametrize("fail", FAILURES)
def test_an_opening_without_credentials_fails_at_once(
    client: Client, tokens: TokenService, fail: Callable[..., None]
) -> None:
    """No time passes, and the next one succeeds."""
    fail(tokens)
    for attempt in range(1, 3):
        with pytest.raises(AuthenticationFailed, match="credentials"):
            client.create_producer("t")
        assert tokens.failures == attempt
    recover(tokens)
    client.create_producer("t").send(b"1")


def test_an_administration_without_credentials(broker: ThreadedFakeBroker) -> None:
    class Broken(Authentication):
        def metadata(self) -> Metadata:
            raise OSError("there is no such file")

    with (
        Admin(broker.address, authentication=Broken()) as admin,
        pytest.raises(AuthenticationFailed, match="no such file"),
    ):
        admin.list_topics("public/default")


def test_a_text_that_is_no_token_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="ASCII"):
        AuthenticationToken("a.b.c\n")


def test_new_partitions_are_found_after_a_failure(
    broker: ThreadedFakeBroker, client: Client, tokens: TokenService
) -> None:
    """Neither a failing function nor a failing schema ends the search for them."""

    class Schema:
        failures = 0
        is_broken = False

        def encode(self, content: Any) -> bytes:
            return bytes(content)

        def decode(self, content: bytes) -> bytes:
            return content

        def schema_info(self) -> Any:
            if self.is_broken:
                self.failures += 1
                raise KeyError("the definition is not available")
            return _NoDefinition

    schema = Schema()
    broker.service.partitions["t"] = 1
    producer = client.create_producer("t", schema=schema)
    tokens.failure = OSError("the token service does not answer")
    wait_until(lambda: tokens.failures >= 2, "checks without a token")
    tokens.failure, schema.is_broken = None, True
    broker.do(lambda: broker.service.partitions.update(t=2))
    wait_until(lambda: schema.failures >= 2, "checks without a definition")
    schema.is_broken = False
    wait_until(lambda: len(producer._core.cores) == 2, "the new partition")  # type: ignore[union-attr]


def test_dead_letters_are_published_after_a_failure(client: Client, tokens: TokenService) -> None:
    """The entry is redelivered, and tried again."""
    client.create_producer("t").send(b"1")
    consumer = client.subscribe(
        "t",
        "s",
        ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=ConsumerDeadLetterPolicy(1),
    )
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(timeout_millis=WAIT_MS))
        fail_by_error(tokens)
    wait_until(lambda: tokens.failures >= 2, "attempts")
    recover(tokens)
    reader = client.create_reader("t-s-DLQ", MessageId.earliest)
    assert reader.read_next(timeout_millis=WAIT_MS).data() == b"1"


class _NoDefinition:
    schema_type, schema = 0, ""


def test_streams_of_the_asyncio_client(tokens: TokenService) -> None:
    async def run() -> None:
        broker = FakeBroker()
        await broker.start()
        async with aio.Client(broker.address, **options_of(tokens)) as client:
            producer = await client.create_producer("t")
            consumer = await client.subscribe("t", "s")
            fail_by_error(tokens)
            await broker.stop()
            await broker.start()
            sending = asyncio.create_task(producer.send(b"1"))
            await asyncio.to_thread(wait_until, lambda: tokens.failures >= 4, "attempts")
            with pytest.raises(AuthenticationFailed):
                await client.create_reader("t", MessageId.earliest)
            recover(tokens)
            await sending
            assert (await consumer.receive(WAIT_MS)).data() == b"1"
        await broker.stop()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
