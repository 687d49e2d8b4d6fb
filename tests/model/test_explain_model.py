"""Compares the past and future in `explain`'s answers with what runs really do.

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

from ledgerfold.broker.explain.run_line import strategy_of
from ledgerfold.broker.explain.scan import Explainer
from ledgerfold.broker.explain.text import KEEPS
from ledgerfold.broker.policies.profiles import DOCUMENTED, PULSAR_4
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.operations import disable_compaction, truncate_topic
from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.errors import CompactionFailed, SubscriptionNotFound
from ledgerfold.storage.ledger import LedgerReader
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.strategies.catalogue import strategy_text
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, CompactionStrategy, Emulation, Policies
from ledgerfold.v1.records_pb2 import MessageId as MessageIdRecord
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.property_tests import examples

# User-defined: the broker does not know it, the compactor in memory does.
OWN = "shop:Everything"
# "MQ==" is also what the key b"1" looks like on the wire: the two are one key.
KEYS = st.sampled_from([b"a", b"b", b"", b"MQ==", None])
VALUES = st.sampled_from([b"", b"1", b"2", b"x" * 90])
MESSAGES = st.tuples(KEYS, VALUES).map(lambda drawn: Message(*drawn))
TIMES = st.sampled_from([0, 1, 2, 3, 1_800_000, 9_000_000])
TIMED = st.tuples(KEYS, VALUES, TIMES).map(lambda drawn: Message(*drawn))
ENTRIES = st.one_of(
    MESSAGES.map(lambda message: ([message], False)),
    st.lists(MESSAGES, min_size=1, max_size=4).map(lambda messages: (messages, True)),
)
TIMED_ENTRIES = st.one_of(
    TIMED.map(lambda message: ([message], False)),
    st.lists(TIMED, min_size=1, max_size=4).map(lambda messages: (messages, True)),
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
EVENT_TIME = CompactionStrategy(name="event-time")
WINDOW = CompactionStrategy(name="event-time-window", settings={"lag_ms": "500000"})
NEWEST = CompactionStrategy(name="publishing-order")
KEEP_3 = CompactionStrategy(name="keep-n", settings={"n": "3"})
STRATEGIES = st.sampled_from(
    [
        CompactionStrategy(name="publishing-order"),
        EVENT_TIME,
        EVENT_TIME,
        CompactionStrategy(name="keep-n", settings={"n": "1"}),
        KEEP_3,
        WINDOW,
        CompactionStrategy(name="newest"),
        CompactionStrategy(name="numeric"),
        CompactionStrategy(name="keep-first"),
        CompactionStrategy(name="header-version", settings={"property": "v"}),
        CompactionStrategy(name=OWN),
    ]
)
MIXED_STEPS = st.lists(
    st.one_of(
        st.lists(TIMED_ENTRIES, min_size=1, max_size=5),
        st.sampled_from(["compact"] * 3),
        STRATEGIES,
        st.sampled_from(["unload", "retain", "advance", "hold", "limit"]),
    ),
    min_size=2,
    max_size=14,
)
PROFILES = st.sampled_from([DOCUMENTED, PULSAR_4])
_VALUE, _OTHER = ([Message(b"a", b"1")], False), ([Message(b"b", b"1")], False)
_GONE = ([Message(b"b", b"")], False)
_TWICE, _TWICE_ALONE = ([Message(b"MQ==", b"2")], False), ([Message(b"MQ==", b"2")], True)
_NO_KEY = ([Message(None, b"1")], False)
_SOME = [_VALUE]
COME_BACK = [
    *([_GONE], "compact", EVENT_TIME, [_TWICE, _TWICE_ALONE], "compact"),
    *(NEWEST, "compact", "unload", [_GONE], "compact"),
]
KEPT_THEN_DROPPED = ["retain", [_NO_KEY], "compact", _SOME, "compact", "drop", _SOME, "compact"]
HIDDEN_THEN_DROPPED = [_SOME, "compact", "limit", [_OTHER], "unload", [_OTHER], "compact"]
MET_TWICE = [[_VALUE, _GONE], "compact", "compact", _SOME, "compact"]
_KEPT, _DROPPED = pb.VERSION_STATE_KEPT, pb.VERSION_STATE_DROPPED


Step = str | CompactionStrategy | list[tuple[list[Message], bool]]


class Id(NamedTuple):
    position: Position
    batch_index: int


class Run(NamedTuple):
    number: int
    horizon: Position
    kept: frozenset[Id]
    strategy: CompactionStrategy
    foretold: dict[Id, pb.CompactionRule]

    def reason(self, found: Id) -> tuple[CompactionStrategy, pb.CompactionRule | None]:
        return self.strategy, self.foretold.get(found)


class ExplainLab(BrokerLab):
    """Every other tombstone is null instead of empty, every other "MQ==" a key given as bytes."""

    def entry(self, messages: Sequence[Message], *, is_batch: bool) -> bytes:
        builder = NativeBatchBuilder("p")
        for key, value, event_time_ms, *_ in messages:
            self._sequence += 1
            odd = self._sequence % 2 == 1
            content = None if odd and not value else value
            builder.add(
                content,
                key,
                key_is_base64=odd and key == b"MQ==",
                event_time_ms=event_time_ms,
                properties={"v": str(self._sequence * 7 % 5)} if self._sequence % 3 else None,
            )
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

    def take(self, step: Step) -> None:
        if isinstance(step, CompactionStrategy):
            self._set(Policies(compaction_strategy=step))
        elif isinstance(step, list):
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
        elif step == "advance":
            self.lab.advance(600_000)
        elif step == "hold":
            start = StartPosition(earliest=True)
            self.lab.run(create_subscription(self.lab.topic, "s", start))
        elif step == "limit":
            self._set(Policies(retention_bytes=1))
        else:
            self._set(Policies(retain_null_key=step == "retain"))
        self.lab.settle()
        if self.lab.topic.log.views.horizon is None:
            self.runs = []

    def _set(self, policies: Policies) -> None:
        self.lab.run(PolicyStore(self.lab.broker).update_topic(self.lab.topic, policies, []))

    def compact(self) -> None:
        """The next run keeps what was said that it would."""
        foretold = {found: told.next_rule for found, told in self.accounts()}
        predicted = {found for found, rule in foretold.items() if rule in KEEPS}
        is_own = self.lab.topic.policies().compaction_strategy.name == OWN
        run = self.lab.compact()
        if run is None:
            return
        assert run.state == RUN_STATE_SUCCESS, run.error_message
        if run.HasField("horizon"):
            kept = frozenset(self.ids(self.lab.topic.log.views.current.compacted).values())
            horizon = Position(run.horizon.ledger_id, run.horizon.entry_id)
            self.runs.append(Run(run.number, horizon, kept, strategy_of(run), foretold))
            assert is_own or kept == predicted

    # What there is

    def ids(self, reader: LedgerReader | None) -> dict[Id, Id]:
        """Returns the ids of publication by present ids."""
        entries = []
        if reader is not None:
            entries = reader.read(EARLIEST, bytes_max=1 << 30, end=LATEST)
        published = list(self.published)
        return {
            Id(entry.header.position, message.batch_index): published[message.sequence_id - 1]
            for entry in entries
            for message in decode(entry.data, entry.header).messages()
        }

    def accounts(self) -> Iterator[tuple[Id, pb.ExplainedVersion]]:
        """Returns the accounts of every version of every key, by the id of publication."""
        there = self.ids(self.lab.topic.log.views.current.compacted)
        for key in {None, *self.published.values()}:
            versions = self.explain(_request(key)).versions
            ids = {_id(told.id) for told in versions}
            for told in versions:
                assert not told.HasField("by") or _id(told.by) in ids
                found = _id(told.id)
                if told.place == pb.VERSION_PLACE_COMPACTED:
                    found = there[found]
                assert self.published[found] == key
                yield found, told

    def explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        return self.lab.run(self._explainer.explain([self.lab.topic], request))

    # What must hold

    def check(self) -> None:
        accounts = list(self.accounts())
        topic = self.lab.topic
        compacted = set(self.ids(topic.log.views.current.compacted).values())
        raw = {each for each in self.published if each.position.ledger_id in topic.log.ledgers}
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
        assert told.state == (_KEPT if found in over[-1].kept else _DROPPED)
        self.check_reason(found, told)
        kept, dropped = _turns(found, over)
        meets_again = any(run.horizon < found.position for run in over)
        if self.is_exact() and not (meets_again and self.published[found] is None):
            named = [told.kept_by if told.HasField("kept_by") else None]
            named += [told.dropped_by if told.HasField("dropped_by") else None]
            spans = [number and pb.RunSpan(first=number, last=number) for number in (kept, dropped)]
            assert named == [span or None for span in spans]
        elif told.state == _DROPPED:
            assert told.dropped_by.first <= dropped <= told.dropped_by.last
        else:
            assert told.kept_by.first <= kept <= told.kept_by.last

    def check_reason(self, found: Id, told: pb.ExplainedVersion) -> None:
        """Checks that the runs named for a version had the reported strategy, and the rule, too, if
        it is a single run; if they had several strategies, none is reported.
        """
        span = told.kept_by if told.state == _KEPT else told.dropped_by
        named = [run for run in self.runs if span.first <= run.number <= span.last]
        strategies = {strategy_text(run.strategy): run.strategy.name for run in named}
        if len(strategies) > 1:
            assert not told.strategy
            assert all(strategy in told.what for strategy in strategies)
            assert told.rule == pb.COMPACTION_RULE_UNSPECIFIED or self.published[found] is None
        if not told.strategy:
            return
        assert set(strategies.values()) == {told.strategy}
        _, _, under = told.what.partition(" under ")
        assert under.startswith(next(iter(strategies)) if under else "")
        # What is trimmed may have had a part in a drop; a note says so.
        if span.first == span.last and (told.state == _KEPT or self.is_exact()):
            assert told.rule == named[0].foretold[found]

    def is_exact(self) -> bool:
        """Returns whether the run that kept or dropped each version is known."""
        strategies = {run.strategy.name for run in self.runs}
        if strategies <= {"publishing-order"}:
            return True
        horizons = [run.horizon for run in self.runs]
        log = self.lab.topic.log
        is_whole = all(each.position.ledger_id in log.ledgers for each in self.published)
        return is_whole and OWN not in strategies and horizons == sorted(horizons)

    def runs_over(self, found: Id) -> list[Run]:
        """From the first one whose range held it on."""
        at = next((at for at, run in enumerate(self.runs) if run.horizon >= found.position), None)
        return [] if at is None else self.runs[at:]


def _turns(found: Id, runs: Sequence[Run]) -> tuple[int, int]:
    """The first run of the last stretch of those that kept it, and of those that did not; 0: none.

    Of a version that was kept in the end, only the former counts, and only runs that had the
    strategy of the last, and its rule.
    """
    kept = dropped = 0
    if found in runs[-1].kept:
        reason = runs[-1].reason(found)
        others = [at for at, run in enumerate(runs) if run.reason(found) != reason]
        runs = runs[others[-1] + 1 :] if others else runs
    for run in runs:
        if found in run.kept:
            kept, dropped = (run.number if dropped or not kept else kept), 0
        elif not dropped:
            dropped = run.number
    return kept, dropped


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
def test_explain_agrees_with_runs(
    steps: list[str | list[tuple[list[Message], bool]]], profile: str
) -> None:
    """Tests every version: where it is, which run removed it, and what the next run does."""
    history = History(profile)
    try:
        for step in steps:
            history.take(step)
            history.check()
        history.compact()
        history.check()
    finally:
        history.lab.stop()


@given(MIXED_STEPS, PROFILES)
@example([EVENT_TIME, [_VALUE], "compact", KEEP_3, "compact"], DOCUMENTED)
@example(["retain", EVENT_TIME, [_NO_KEY], "compact", KEEP_3, "compact"], DOCUMENTED)
@example([[_VALUE, _NO_KEY], "compact", EVENT_TIME, "compact"], PULSAR_4)
@example([[_VALUE, _GONE], "compact", EVENT_TIME, "compact"], PULSAR_4)
@example([WINDOW, [_VALUE], "compact", "advance", "compact"], PULSAR_4)
# A horizon that went back lets a dropped message come back, under another strategy.
@example(
    [EVENT_TIME, [_TWICE, _TWICE_ALONE], "compact", NEWEST, "compact", [_GONE], "compact"], PULSAR_4
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_explain_agrees_with_runs_of_all_strategies(steps: list[Step], profile: str) -> None:
    """Tests histories of several strategies, too; results of user-defined ones are not
    predicted.
    """
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
def test_explain_by_id_agrees_with_explain_by_key(
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
