"""The end of a round: faults stop, and everything must be well again.

1. Producers finish: all that was sent gets its receipt.
2. The broker stops cleanly and starts once more; a compaction of each topic succeeds.
3. Producers send a raw tail behind that horizon.
4. The compacted view, the raw tail, the open readers and the durable consumer have all acknowledged
   messages; `stats-internal` is right.
5. The broker stops cleanly; no process is left. The store opens without damage, and no file lies
   about that no record names.

Each step has a limit; a failed one is reported, and the others still run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS
from tests.support.waiting import wait_until
from tests.torture.bookkeeping import Books
from tests.torture.cleanings import Cleanings
from tests.torture.clients import Clients
from tests.torture.compactions import Compactions
from tests.torture.life import Life
from tests.torture.offline import check_directory
from tests.torture.reading import read_view
from tests.torture.seen import Seen
from tests.torture.settings import AUDITED, KAFKA_TOPIC, TOPICS, TortureSettings
from tests.torture.tally import Tally

_RUN_TIMEOUT_S = 120.0
# Numbers of the last questions to readers; those of passes begin at 1.
_LAST_PASS, _CATCH_UP = -1, -2


class Ending:
    """Carries it out, once."""

    def __init__(
        self,
        settings: TortureSettings,
        life: Life,
        clients: Clients,
        books: Books,
        compactions: dict[str, Compactions],
        cleanings: Cleanings,
        tally: Tally,
    ) -> None:
        self._settings, self._life, self._clients = settings, life, clients
        self._books, self._compactions, self._tally = books, compactions, tally
        self._cleanings = cleanings
        self._deadline_s = time.monotonic() + settings.converge_s
        self._horizons: dict[str, Position] = {}

    def run(self) -> None:
        """Runs the round. Its findings are in the tally and the books."""
        for step in (
            self._finish_producers,
            self._restart,
            self._compact,
            self._clean,
            self._send_tail,
            self._check_views,
            self._check_kafka,
            self._check_followers,
            self._check_consumer,
            self._check_stats,
            self._stop,
        ):
            self._carry_out(step)

    def _carry_out(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (AssertionError, LedgerfoldError, OSError) as error:
            name = step.__name__.strip("_").replace("_", " ")
            self._tally.not_converged.append(f"{name}: {str(error).strip()[:1000]}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        # However late it is, each step is given a little.
        left_s = max(self._deadline_s - time.monotonic(), 15.0)
        wait_until(condition, what, left_s)

    # The steps.

    def _finish_producers(self) -> None:
        for client in self._clients.producers.values():
            client.tell("finish")
        finished = [client.is_finished for client in self._clients.producers.values()]
        self._wait(lambda: all(each.is_set() for each in finished), "every producer's receipts")

    def _restart(self) -> None:
        for each in self._compactions.values():
            each.stop(_RUN_TIMEOUT_S)
        code = self._life.broker.stop() if self._life.is_up else 0
        self._life.start()
        assert code == 0, f"The broker ended with {code} when it was asked to stop."

    def _compact(self) -> None:
        self._life.broker.wait_for_compactor()
        with closing(Admin(self._life.url)) as admin:
            for topic in TOPICS:
                admin.trigger_compaction(topic)
                for _ in admin.watch_compaction(topic, timeout_seconds=_RUN_TIMEOUT_S):
                    pass
                run = admin.runs(topic, limit=1)[0]
                self._compactions[topic].count(admin)
                assert run.state == RUN_STATE_SUCCESS, f"{topic}: {run.error_message}"
                self._horizons[topic] = Position(run.horizon.ledger_id, run.horizon.entry_id)
                is_open = self._compactions[topic].open_runs(admin)
                self._tally.runs_never_ended += is_open
                admin.trim(topic)

    def _clean(self) -> None:
        self._cleanings.clean_all(_RUN_TIMEOUT_S)

    def _check_kafka(self) -> None:
        """Nothing changes any more: a pass must read exactly the expected records."""
        expected = self._books.snapshot(KAFKA_TOPIC)
        self._clients.readers[KAFKA_TOPIC].tell("pass", number=_LAST_PASS)
        self._wait(lambda: _LAST_PASS in self._clients.passes, "the last pass over the Kafka log")
        found, read = self._clients.passes.pop(_LAST_PASS)
        missed = self._books.judge(expected, found, "kafka log", is_exact=True)
        assert not missed, f"{KAFKA_TOPIC}: {missed} keys have not their last record: {read}"

    def _send_tail(self) -> None:
        wanted = {}
        for name, client in self._clients.producers.items():
            wanted[name] = self._books.producers[name].acknowledged + self._settings.tail_messages
            client.tell("more", count=self._settings.tail_messages)
        self._wait(
            lambda: all(self._books.producers[n].acknowledged >= s for n, s in wanted.items()),
            "receipts for the raw tail",
        )

    def _check_views(self) -> None:
        with closing(Client(self._life.url)) as client:
            for topic in TOPICS:
                expected = self._books.snapshot(topic)
                seen = self._seen(topic)
                for message in read_view(client, topic, MessageId.latest):
                    seen.take(message)
                self._take_problems(seen, "last view")
                missed = self._books.judge(expected, seen.latest, "last view", is_exact=True)
                self._check_tail(client, topic)
                assert not missed, f"{topic}: {missed} keys have not their last message."

    def _check_tail(self, client: Client, topic: str) -> None:
        """Raw, behind the horizon: every message of every producer, without a gap."""
        horizon = self._horizons.get(topic)
        if horizon is None:
            return
        seen, counts = self._seen(topic), dict.fromkeys(self._producers(topic), 0)
        start = MessageId(-1, *horizon)
        with closing(client.create_reader(topic, start)) as reader:
            for message in reader:
                if message.message_id().position > horizon:
                    seen.take(message)
                    counts[message.producer_name()] += 1
        self._take_problems(seen, "raw tail")
        for name, count in counts.items():
            # Their last messages are the tail; that ids rise was checked.
            if count < self._settings.tail_messages:
                last = self._books.producers[name].acknowledged
                self._books.gap(name, last - self._settings.tail_messages + 1 + count, last)

    def _check_followers(self) -> None:
        for topic, client in self._clients.readers.items():
            number = _CATCH_UP - [*self._clients.readers].index(topic)
            expected = self._books.snapshot(topic)
            client.tell("catch-up", number=number)
            self._wait(lambda n=number: n in self._clients.passes, f"the followers of {topic}")  # type: ignore[misc]
            found, read = self._clients.passes.pop(number)
            missed = self._books.judge(expected, found, "follower")
            assert not missed, f"{topic}: a follower missed {missed}: {read}"

    def _check_consumer(self) -> None:
        wanted = {name: self._books.producers[name].sent for name in self._producers(AUDITED)}
        self._wait(lambda: self._clients.consumed == wanted, "the durable consumer's last message")

    def _check_stats(self) -> None:
        with closing(Admin(self._life.url)) as admin:
            for topic in TOPICS:
                stats = admin.internal_stats(topic)
                ledgers = [each["ledgerId"] for each in stats["ledgers"]]
                entries = sum(each["entries"] for each in stats["ledgers"])
                horizon = self._horizons.get(topic, EARLIEST)
                mark_delete = stats["cursors"]["__compaction"]["markDeletePosition"]
                last = admin.last_message_id(topic)
                for claim, is_so in {
                    "ledgers rise": ledgers == sorted(set(ledgers)),
                    "entries add up": entries == stats["numberOfEntries"] >= 0,
                    "there is a compacted ledger": stats["compactedLedger"]["entries"] > 0,
                    "the horizon is the run's": mark_delete == str(horizon),
                    "the last entry is the last": stats["lastConfirmedEntry"] == str(last.position),
                }.items():
                    assert is_so, f"{topic}: not so: {claim}: {stats}"

    def _stop(self) -> None:
        broker = self._life.broker
        assert self._life.is_up, f"The broker ended with {broker.returncode}."
        code = broker.stop()
        assert code == 0, f"The broker ended with {code} when it was asked to stop."
        try:
            wait_until(lambda: not broker.processes(), "the broker's processes to end")
        except AssertionError:
            self._tally.left_behind += len(broker.processes())
            broker.close()
        wrong = check_directory(broker.data_dir)
        assert not wrong, f"{len(wrong)}: " + "; ".join(wrong[:10])

    # Details.

    def _producers(self, topic: str) -> list[str]:
        return self._settings.producer_names(topic)

    def _seen(self, topic: str) -> Seen:
        names = self._producers(topic)
        return Seen({name: self._books.producers[name].messages for name in names})

    def _take_problems(self, seen: Seen, where: str) -> None:
        for kind, producer, sequence_id in seen.take_problems():
            self._books.problem(kind, producer, sequence_id)
            self._tally.tell(f"{where}: {kind} {producer} {sequence_id}")
