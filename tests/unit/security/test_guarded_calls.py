"""Roles at the door of gRPC: which of all calls each may make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.broker.rpc.guarded import GuardedMethod, need_of
from ledgerfold.broker.rpc.stream import EOF
from ledgerfold.broker.security.guard import Guard, Target, Use, target_of
from ledgerfold.broker.security.needs import Need
from ledgerfold.broker.security.tokens import TOKEN_BYTES_MAX, Caller
from ledgerfold.rpc_texts import TEXTS_MAX
from ledgerfold.storage.errors import LedgerfoldError, Moved
from ledgerfold.v1 import admin_pb2, data_pb2, kafka_pb2
from ledgerfold.v1.records_pb2 import Action
from ledgerfold.v1.what_if_pb2 import ReplaySetting, WhatIfRequest
from tests.model.broker_lab import BrokerLab
from tests.support.security_lab import Tokens
from tests.support.served_lab import METHODS, ServedLab, end_of, path_of, write
from tests.support.waiting import WAIT_S

TOPIC, NAMESPACE = "persistent://acme/shop/orders", "acme/shop"
DENIED, STRANGER = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
# What a role with that grant on the topic has.
READER = {Need.ROLE, Need.LOOKUP, Need.CONSUME}
WRITER = {Need.ROLE, Need.LOOKUP, Need.PRODUCE}
OWN = {
    "reader": READER,
    "writer": WRITER,
    "nobody": {Need.ROLE},
    "acme-admin": set(Need) - {Need.SUPERUSER},
}


class GuardedLab:
    def __init__(self, tokens: Tokens) -> None:
        self.tokens, self.lab, self.now_ms = tokens, BrokerLab(), 0
        settings = SecuritySettings(
            token_secret_key=str(tokens.file),
            superuser_roles=("admin",),
            proxy_roles=("proxy",),
            refresh_check_s=1,
        )
        namespaces = self.lab.broker.namespaces
        self.guard = Guard(settings, namespaces, lambda: self.now_ms)
        self.served = ServedLab(self.lab, self.guard)
        self.permissions = namespaces.permissions
        self.run(namespaces.put_tenant("acme", ("acme-admin",)))
        self.run(namespaces.create(NAMESPACE))
        self.run(self.lab.broker.topic(TOPIC))
        self.grant("reader", Action.ACTION_CONSUME)
        self.grant("writer", Action.ACTION_PRODUCE)

    def run(self, work: Any) -> Any:
        return self.served.run(work)

    def grant(self, role: str, *actions: Action, topic: str = TOPIC) -> None:
        self.run(self.permissions.grant(NAMESPACE, topic, role, actions))

    def code(self, method: MethodDescriptor, role: str | None, topic: str = TOPIC) -> Any:
        """Returns the status of a call about the topic; None: a stream that stays open."""
        return self.run(self._code(method, request_of(method, topic), self.metadata(role)))

    def metadata(self, role: str | None) -> Any:
        if role is None:
            return ()
        return (("authorization", f"Bearer {self.tokens.of(role)}"),)

    async def _code(self, method: MethodDescriptor, request: Any, metadata: Any) -> Any:
        data, channel = request.SerializeToString(), self.served.channel
        if method.client_streaming:
            call = channel.stream_stream(path_of(method))(metadata=metadata)
            # A stranger is refused before the opening arrives.
            await write(call, data)
        elif method.server_streaming:
            call = channel.unary_stream(path_of(method))(data, metadata=metadata)
        else:
            call = channel.unary_unary(path_of(method))(data, metadata=metadata)
            with suppress(grpc.RpcError):
                await call
            return await call.code()
        try:
            first = await call.read()
        except grpc.RpcError:
            return await call.code()
        if first is EOF:
            return await call.code()
        call.cancel()
        return None

    async def opened(self, method: str, opening: Any, role: str, **claims: Any) -> Any:
        """Opens a stream, and returns its call once the broker has answered."""
        metadata = (("authorization", f"Bearer {self.tokens.of(role, **claims)}"),)
        call = self.served.channel.stream_stream(f"/ledgerfold.v1.DataService/{method}")(
            metadata=metadata
        )
        await call.write(opening.SerializeToString())
        assert await call.read() is not EOF
        return call

    def close(self) -> None:
        self.served.close()
        self.lab.stop()


def request_of(method: MethodDescriptor, topic: str) -> Any:
    """Returns a request about the topic, or its namespace or tenant: whatever it can name."""
    request: Any = GetMessageClass(method.input_type)()
    if method.client_streaming:
        request.open.topic = topic
        return request
    fields = method.input_type.fields_by_name
    if "scope" in fields:
        request.scope.topic = topic
    elif "topic" in fields:
        request.topic = topic
    elif "namespace" in fields:
        request.namespace = NAMESPACE
    elif "tenant" in fields:
        request.tenant = "acme"
    return request


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedLab]:
    lab = GuardedLab(Tokens(tmp_path_factory.mktemp("keys")))
    yield lab
    lab.close()


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda each: str(each.name))
def test_each_role_at_each_rpc(guarded: GuardedLab, method: MethodDescriptor) -> None:
    need = need_of(method)
    assert guarded.code(method, None) is STRANGER
    for role, own in OWN.items():
        # Of the admin, a topic that does not exist: much is permitted.
        topic = "persistent://acme/shop/none" if role == "acme-admin" else TOPIC
        request = request_of(method, topic)
        names_nothing = not method.client_streaming and target_of(request) == Target()
        is_permitted = need in own and (need is Need.ROLE or not names_nothing)
        code = guarded.code(method, role, topic)
        assert (code not in (DENIED, STRANGER)) == is_permitted, (role, code)


def test_the_largest_token_is_accepted(guarded: GuardedLab) -> None:
    """gRPC refused calls with more than 8 KiB of headers at random."""
    token = guarded.tokens.of("reader", more="x" * (TOKEN_BYTES_MAX * 3 // 4 - 100))
    assert TOKEN_BYTES_MAX - 200 < len(token) <= TOKEN_BYTES_MAX
    method = METHODS["ledgerfold.v1.GetTopicStatsRequest"]
    request, metadata = request_of(method, TOPIC), (("authorization", f"Bearer {token}"),)
    for _ in range(20):
        assert guarded.run(guarded._code(method, request, metadata)) is grpc.StatusCode.OK


@pytest.mark.parametrize("role", ["reader", "writer", "acme-admin"])
@pytest.mark.parametrize("named", ["publish", "subscribe"])
def test_a_permission_does_not_apply_to_another_topic_or_tenant(
    guarded: GuardedLab, role: str, named: str
) -> None:
    method = METHODS[f"ledgerfold.v1.{named.capitalize()}Request"]
    assert guarded.code(method, role, "persistent://other/shop/orders") is DENIED
    if role != "acme-admin":
        assert guarded.code(method, role, f"{TOPIC}-other") is DENIED
        # A partition has the grants of its topic.
        own = {"reader": "subscribe", "writer": "publish"}[role]
        assert (guarded.code(method, role, f"{TOPIC}-partition-3") is DENIED) == (named != own)


COMPACTION: dict[str, Any] = {"topic": TOPIC, "subscription": "__compaction"}


@pytest.mark.parametrize(
    ("request_", "role"),
    [
        (data_pb2.UnsubscribeRequest(**COMPACTION), "reader"),
        (admin_pb2.ClearBacklogRequest(**COMPACTION), "reader"),
        (kafka_pb2.DescribeLogRequest(topic=TOPIC), "writer"),
        *(
            (kafka_pb2.KafkaAppendRequest(topic=TOPIC, **fields), "writer")
            for fields in (
                {"origin": kafka_pb2.KAFKA_ORIGIN_REPLICATION},
                {"origin": kafka_pb2.KAFKA_ORIGIN_COORDINATOR},
                {"keep_segments": True},
                {"aborted": [{"producer_id": 1}]},
            )
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_some_requests_need_more_permissions(guarded: GuardedLab, request_: Any, role: str) -> None:
    """Only administrators decide what the compacted view has, and append as a leader does."""
    method = METHODS[f"ledgerfold.v1.{type(request_).__name__}"]

    def code(caller: str) -> Any:
        return guarded.run(guarded._code(method, request_, guarded.metadata(caller)))

    assert code(role) is DENIED
    assert code("admin") not in (DENIED, STRANGER)


class Context:
    """The part of a call's context that says who calls."""

    def __init__(self, token: str) -> None:
        self._token = token

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._token}"),)

    def auth_context(self) -> dict[str, Any]:
        return {}


def test_a_request_is_authorized_before_its_lists_are_looked_at(guarded: GuardedLab) -> None:
    """No test had sent a large request of a role that is not permitted: the broker had looked at
    each of its values first.
    """
    method = METHODS["ledgerfold.v1.WhatIfRequest"]
    request = WhatIfRequest(topic=TOPIC, replays=[ReplaySetting()] * (TEXTS_MAX + 1))
    for role, code in (("nobody", DENIED), ("reader", grpc.StatusCode.INVALID_ARGUMENT)):
        assert guarded.run(guarded._code(method, request, guarded.metadata(role))) is code


def test_a_stream_of_responses_ends_with_the_token(guarded: GuardedLab) -> None:
    soon_s = 4_000_000_000
    guarded.now_ms = 0
    method = METHODS["ledgerfold.v1.WatchCompactionRequest"]
    context = Context(guarded.tokens.of("acme-admin", exp=soon_s))

    async def watch() -> None:
        async with GuardedMethod(guarded.guard, method).watched(context) as opened:
            opened(admin_pb2.WatchCompactionRequest(topic=TOPIC))
            guarded.now_ms = soon_s * 1000
            guarded.guard.check_expired()
            await asyncio.sleep(10)

    with pytest.raises(Moved, match="expired"):
        guarded.run(watch())
    guarded.now_ms = 0


def test_the_case_of_a_scheme_does_not_matter(guarded: GuardedLab) -> None:
    method = METHODS["ledgerfold.v1.GetClockRequest"]
    metadata = (("authorization", f"bEARER {guarded.tokens.of('nobody')}"),)
    code = guarded.run(guarded._code(method, request_of(method, TOPIC), metadata))
    assert code is grpc.StatusCode.OK


def test_a_proxy_role_is_refused_over_grpc(guarded: GuardedLab) -> None:
    guarded.grant("proxy", Action.ACTION_CONSUME)
    assert guarded.code(METHODS["ledgerfold.v1.SubscribeRequest"], "proxy") is DENIED


def test_a_revocation_lets_other_tasks_run(guarded: GuardedLab) -> None:
    guarded.grant("leaving", Action.ACTION_CONSUME)
    ended, target = list[LedgerfoldError](), Target.topic_named(TOPIC)

    async def seen_meanwhile() -> set[int]:
        seen = set[int]()
        with ExitStack() as uses:
            for _ in range(500):
                use = Use(Caller("leaving"), Need.CONSUME, target, ended.append)
                uses.enter_context(guarded.guard.use(use))
            revoking = asyncio.ensure_future(
                guarded.permissions.revoke(NAMESPACE, TOPIC, "leaving")
            )
            while not revoking.done():
                await asyncio.sleep(0)
                seen.add(len(ended))
        return seen

    assert len(guarded.run(seen_meanwhile())) > 5
    assert len(ended) == 500


def test_reflection_is_not_available(guarded: GuardedLab) -> None:
    call = guarded.served.channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    )

    async def code() -> Any:
        asked = call(metadata=guarded.metadata("admin"))
        with pytest.raises(grpc.RpcError):
            await asked.read()
        return await asked.code()

    assert guarded.run(code()) is grpc.StatusCode.UNIMPLEMENTED


def test_health_checks_need_no_token_but_watches_do(guarded: GuardedLab) -> None:
    async def codes() -> Any:
        check = guarded.served.channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
        watch = guarded.served.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        with pytest.raises(grpc.RpcError):
            await watch.read()
        return await check.code(), await watch.code()

    assert guarded.run(codes()) == (grpc.StatusCode.OK, STRANGER)


def test_a_watch_of_health_is_bounded(guarded: GuardedLab) -> None:
    """It ends with its token, and keeps no long name."""
    soon_s = 4_000_000_000

    def watch(service: str) -> Any:
        metadata = (("authorization", f"Bearer {guarded.tokens.of('nobody', exp=soon_s)}"),)
        request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
        calling = guarded.served.channel.unary_stream("/grpc.health.v1.Health/Watch")
        return calling(request, metadata=metadata)

    async def opened() -> Any:
        call = watch("")
        assert await call.read() is not EOF
        return call

    def expire() -> None:
        guarded.now_ms = soon_s * 1000
        guarded.guard.check_expired()

    guarded.now_ms = 0
    code = _ends_with(guarded, guarded.run(opened()), expire)
    guarded.now_ms = 0
    assert code is grpc.StatusCode.ABORTED

    async def refused() -> Any:
        ended = await asyncio.wait_for(end_of(watch("x" * 100_000)), WAIT_S)
        return None if ended is None else ended.code()

    assert guarded.run(refused()) is grpc.StatusCode.INVALID_ARGUMENT


def _ends_with(guarded: GuardedLab, call: Any, cause: Callable[[], Any]) -> Any:
    async def end() -> Any:
        done = cause()
        if done is not None:
            await done
        ended = await asyncio.wait_for(end_of(call), WAIT_S)
        return None if ended is None else ended.code()

    return guarded.run(end())


def test_a_revoked_grant_ends_only_its_stream(guarded: GuardedLab) -> None:
    guarded.grant("leaving", Action.ACTION_PRODUCE)
    opening = data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic=TOPIC))
    leaving = guarded.run(guarded.opened("Publish", opening, "leaving"))
    staying = guarded.run(guarded.opened("Publish", opening, "writer"))
    revoked = _ends_with(
        guarded, leaving, lambda: guarded.permissions.revoke(NAMESPACE, TOPIC, "leaving")
    )
    assert revoked is DENIED
    assert not staying.done()
    staying.cancel()


def test_a_stream_survives_while_another_grant_applies(guarded: GuardedLab) -> None:
    guarded.grant("both", Action.ACTION_CONSUME)
    guarded.grant("both", Action.ACTION_CONSUME, topic="")
    opening = data_pb2.ReadRequest(open=data_pb2.ReadOpen(topic=TOPIC, start={"latest": True}))
    call = guarded.run(guarded.opened("Read", opening, "both"))
    guarded.run(guarded.permissions.revoke(NAMESPACE, TOPIC, "both"))
    assert not call.done()
    # A grant may also become a smaller one.
    replaced = _ends_with(
        guarded,
        call,
        lambda: guarded.permissions.grant(NAMESPACE, "", "both", [Action.ACTION_PRODUCE]),
    )
    assert replaced is DENIED


def test_an_expired_token_ends_the_stream(guarded: GuardedLab) -> None:
    soon_s = 4_000_000_000
    opening = data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic=TOPIC))
    call = guarded.run(guarded.opened("Publish", opening, "writer", exp=soon_s))
    guarded.now_ms = soon_s * 1000 - 1
    guarded.guard.check_expired()
    assert not call.done()
    guarded.now_ms += 1
    # A status that clients retry, with a newer token.
    assert _ends_with(guarded, call, guarded.guard.check_expired) is grpc.StatusCode.ABORTED
