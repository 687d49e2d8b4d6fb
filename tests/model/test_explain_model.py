"""What `explain` tells of every version is what runs really did, and what the next one does.

Random histories with batches, tombstones (null and empty), keys given as bytes, messages without a
key under a policy that changes, runs that fail, ledgers that are trimmed, retention that hides,
truncation, and compaction that is disabled, under both profiles. After each step the account of
every key is compared with the compacted ledgers that were seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ledgerfold.broker.explain.scan import Explainer
from ledgerfold.broker.explain.text import KEEPS
from ledgerfold.broker.policies.profiles import DOCUMENTED, PULSAR_4
from ledgerfold.broker.topics.operations import disable_compaction, truncate_topic
from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.errors import CompactionFailed, SubscriptionNotFound
from ledgerfold.storage.ledger import LedgerReader
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, Emulation, Policies
from ledgerfold.v1.records_pb2 import MessageId as MessageIdRecord
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.property_tests import examples

# "MQ==" is also what the key b"1" looks like on the wire: the two are one key.
KEYS = st.sampled_from([b"a", b"b", b"", b"MQ==", None])
VALUES = st.sampled_from([b"", b"1", b"x" * 90])
MESSAGES = st.tuples(KEYS, VALUES).map(lambda drawn: Message(*drawn))
ENTRIES = st.one_of(
    MESSAGES.map(lambda message: ([message], False)),
    st.lists(MESSAGES, min_size=1, max_size=4).map(lambda messages: (messages, True)),
)
PUBLISHED = st.lists(ENTRIES, min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        PUBLISHED,
        st.sampled_from(["compact"] * 4),
        st.sampled_from(["fail", "unload", "retain", "drop", "limit", "truncate", "disable"]),
    ),
    min_size=2,
    max_size=14,
)
PROFILES = st.sampled_from([DOCUMENTED, PULSAR_4])
_VALUE, _OTHER = ([Message(b"a", b"1")], False), ([Message(b"b", b"1")], False)
_GONE = ([Message(b"b", b"")], False)
_NO_KEY = ([Message(None, b"1")], False)
_SOME = [_VALUE]
KEPT_THEN_DROPPED = ["retain", [_NO_KEY], "compact", _SOME, "compact", "drop", _SOME, "compact"]
HIDDEN_THEN_DROPPED = [_SOME, "compact", "limit", [_OTHER], "unload", [_OTHER], "compact"]
MET_TWICE = [[_VALUE, _GONE], "compact", "compact", _SOME, "compact"]
_KEPT, _DROPPED = pb.VERSION_STATE_KEPT, pb.VERSION_STATE_DROPPED


class Id(NamedTuple):
    position: Position
    batch_index: int


class Run(NamedTuple):
    number: int
    horizon: Position
    kept: frozenset[Id]


class ExplainLab(BrokerLab):
    """Every other tombstone is null instead of empty, every other "MQ==" a key given as bytes."""

    def entry(self, messages: Sequence[Message], *, is_batch: bool) -> bytes:
        builder = NativeBatchBuilder("p")
        for key, value, *_ in messages:
            self._sequence += 1
            odd = self._sequence % 2 == 1
            content = None if odd and not value else value
            builder.add(content, key, key_is_base64=odd and key == b"MQ==")
        return builder.build(
            sequence_id=self._sequence, publish_time_ms=self.clock.now_ms(), plain=not is_batch
        )


class History:
    """A lab, what was published in it, and the compacted ledgers as they were read."""

    def __init__(self, profile: str) -> None:
        self.lab = ExplainLab()
        self.published: dict[Id, bytes | None] = {}
        self.runs: list[Run] = []
        self._explainer = Explainer(self.lab.broker)
        self._set(Policies(emulation=Emulation(profile=profile)))

    # Steps

    def take(self, step: str | list[tuple[list[Message], bool]]) -> None:
        if isinstance(step, list):
            for position, (messages, is_batch) in zip(self.lab.publish(step), step, strict=True):
                for index, message in enumerate(messages):
                    found = Id(position, index if is_batch else -1)
                    self.published[found] = message.key
        elif step == "compact":
            self.compact()
        elif step == "fail":
            self.lab.compactor.failure = CompactionFailed("phase two", "a test wants it")
            self.lab.compact()
            self.lab.compactor.failure = None
        elif step == "unload":
            self.lab.run(self.lab.broker.unload_topic(TOPIC))
        elif step == "truncate":
            self.lab.run(truncate_topic(self.lab.broker, TOPIC))
        elif step == "disable":
            with suppress(SubscriptionNotFound, CompactionFailed):
                self.lab.run(disable_compaction(self.lab.broker, TOPIC))
        elif step == "limit":
            self._set(Policies(retention_bytes=1))
        else:
            self._set(Policies(retain_null_key=step == "retain"))
        self.lab.settle()
        if self.lab.topic.log.horizon is None:
            self.runs = []

    def _set(self, policies: Policies) -> None:
        self.lab.run(PolicyStore(self.lab.broker).update_topic(self.lab.topic, policies, []))

    def compact(self) -> None:
        """The next run keeps what was said that it would."""
        predicted = {found for found, told in self.accounts() if told.next_rule in KEEPS}
        run = self.lab.compact()
        if run is None:
            return
        assert run.state == RUN_STATE_SUCCESS, run.error_message
        if run.HasField("horizon"):
            kept = frozenset(self.ids(self.lab.topic.log.view.compacted))
            horizon = Position(run.horizon.ledger_id, run.horizon.entry_id)
            self.runs.append(Run(run.number, horizon, kept))
            assert kept == predicted

    # What there is

    def ids(self, reader: LedgerReader | None) -> set[Id]:
        entries = []
        if reader is not None:
            entries = reader.read(EARLIEST, bytes_max=1 << 30, end=LATEST)
        return {
            Id(entry.header.position, message.batch_index)
            for entry in entries
            for message in decode(entry.data, entry.header).messages()
        }

    def accounts(self) -> Iterator[tuple[Id, pb.ExplainedVersion]]:
        """Of every version of every key."""
        for key in {None, *self.published.values()}:
            for told in self.explain(_request(key)).versions:
                found = _id(told.id)
                assert self.published[found] == key
                yield found, told

    def explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        return self.lab.run(self._explainer.explain([self.lab.topic], request))

    # What must hold

    def check(self) -> None:
        accounts = list(self.accounts())
        topic = self.lab.topic
        compacted = self.ids(topic.log.view.compacted)
        raw = {each for each in self.published if topic.log.has_ledger(each.position.ledger_id)}
        assert sorted(found for found, _ in accounts) == sorted(raw | compacted)
        for found, told in accounts:
            place = {
                (True, True): pb.VERSION_PLACE_BOTH,
                (True, False): pb.VERSION_PLACE_RAW,
                (False, True): pb.VERSION_PLACE_COMPACTED,
            }[found in raw, found in compacted]
            assert told.place == place
            self.check_account(found, told)

    def check_account(self, found: Id, told: pb.ExplainedVersion) -> None:
        """State and runs, against the ledgers that these runs left."""
        over = self.runs_over(found)
        if not over:
            assert told.state == pb.VERSION_STATE_ABOVE_HORIZON
            return
        keepers = [run.number for run in over if found in run.kept]
        droppers = [run.number for run in over if found not in run.kept]
        assert told.state == (_KEPT if found in over[-1].kept else _DROPPED)
        meets_again = any(run.horizon < found.position for run in over)
        if meets_again and self.published[found] is None:
            span = told.dropped_by if told.state == _DROPPED else told.kept_by
            assert span.first <= (droppers if told.state == _DROPPED else keepers)[0] <= span.last
            return
        expected = [pb.RunSpan(first=runs[0], last=runs[0]) for runs in (keepers, droppers) if runs]
        named = [getattr(told, name) for name in ("kept_by", "dropped_by") if told.HasField(name)]
        assert named == expected
        if told.HasField("by"):
            assert self.published[_id(told.by)] == self.published[found]

    def runs_over(self, found: Id) -> list[Run]:
        """From the first one whose range held it on."""
        at = next((at for at, run in enumerate(self.runs) if run.horizon >= found.position), None)
        return [] if at is None else self.runs[at:]


def _request(key: bytes | None) -> pb.ExplainRequest:
    if key is None:
        return pb.ExplainRequest(topic=TOPIC, null_key=True)
    return pb.ExplainRequest(topic=TOPIC, key=key)


def _id(record: MessageIdRecord) -> Id:
    return Id(Position(record.ledger_id, record.entry_id), record.batch_index)


@given(STEPS, PROFILES)
@example(
    ["retain", [_NO_KEY], "compact", [_VALUE], "compact", "drop", [_VALUE], "compact"], DOCUMENTED
)
@example(
    [[_VALUE], "compact", "limit", [_OTHER], "unload", [_OTHER], "compact", "compact"], DOCUMENTED
)
@example([[_VALUE, _GONE], "compact", "compact", [_VALUE], "compact"], PULSAR_4)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_explain_agrees_with_what_runs_do(
    steps: list[str | list[tuple[list[Message], bool]]], profile: str
) -> None:
    """Of every version: where it is, what became of it and by which run, what the next run does."""
    history = History(profile)
    try:
        for step in steps:
            history.take(step)
            history.check()
        history.compact()
        history.check()
    finally:
        history.lab.stop()


@given(STEPS, PROFILES)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_message_is_told_of_by_its_id_as_by_its_key(
    steps: list[str | list[tuple[list[Message], bool]]], profile: str
) -> None:
    """The same account; of what is nowhere any more, the runs that may have dropped it."""
    history = History(profile)
    try:
        for step in steps:
            history.take(step)
        accounts = dict(history.accounts())
        for found in history.published:
            message_id = MessageIdRecord(
                ledger_id=found.position.ledger_id,
                entry_id=found.position.entry_id,
                batch_index=found.batch_index,
                partition=-1,
            )
            request = pb.ExplainRequest(topic=TOPIC, message_id=message_id)
            (told,) = history.explain(request).versions
            if found in accounts:
                assert told == accounts[found]
            else:
                assert told.place == pb.VERSION_PLACE_TRIMMED
                dropped = [run for run in history.runs_over(found) if found not in run.kept]
                first, last = told.dropped_by.first, told.dropped_by.last
                assert not dropped or first <= dropped[0].number <= last
                assert bool(dropped) == (told.state == pb.VERSION_STATE_UNKNOWN)
    finally:
        history.lab.stop()
