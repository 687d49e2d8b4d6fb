"""One round of torture, from an empty directory to the verdict.

Everything it starts ends with the `with` block. The data lie on a separate tmpfs if it can be
mounted; after a failure, or on request, they are copied to `folder` before it is removed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from ledgerfold.broker.client import MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1.records_pb2 import CompactionStrategy, Policies
from tests.support.broker_process import BrokerFailed
from tests.support.small_disk import CannotMount, SmallDisk
from tests.torture.bookkeeping import Books
from tests.torture.cleanings import Cleanings
from tests.torture.clients import Clients
from tests.torture.compactions import Compactions
from tests.torture.ending import Ending
from tests.torture.faults import Faults
from tests.torture.life import Life
from tests.torture.passes import Passes
from tests.torture.report import Verdict, table
from tests.torture.settings import (
    AUDIT,
    AUDITED,
    BY_EVENT_TIME,
    KAFKA_TOPIC,
    TOPICS,
    TortureSettings,
)
from tests.torture.tally import Tally

_LINE_EVERY_S = 10.0
_DATA = "data"


class Outcome(NamedTuple):
    """`wrong`: counts that should be zero and are not. `kept`: where the data are, if they are."""

    tally: Tally
    books: Books
    wrong: list[str]
    kept: Path | None


class Round:
    """`say` is given each line."""

    def __init__(
        self,
        settings: TortureSettings,
        folder: Path,
        *,
        keep: bool = False,
        say: Callable[[str], object],
    ) -> None:
        self._settings, self._folder, self._keep, self._say = settings, folder, keep, say
        self._tally = Tally(folder / "events.log")
        names = {topic: settings.producer_names(topic) for topic in (*TOPICS, KAFKA_TOPIC)}
        self._books = Books(names, settings.seed, self._tally.tell)
        self._stack = ExitStack()
        self._line_s = self._began_s = time.monotonic()

    def __enter__(self) -> Round:
        try:
            self._disk = self._mount()
            root = self._folder if self._disk is None else self._disk.path
            self._data_dir = root / _DATA
            self._life = Life(
                self._settings,
                self._data_dir,
                self._folder / "ledgerfold.broker.log.log",
                self._tally,
                self._free_disk,
            )
            self._stack.callback(self._life.broker.close)
            self._clients = self._stack.enter_context(
                closing(Clients(self._settings, self._life.url, self._folder, self._books))
            )
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _mount(self) -> SmallDisk | None:
        disk = SmallDisk(self._folder / "disk", self._settings.disk_mb)
        try:
            return self._stack.enter_context(disk)
        except CannotMount as error:
            self._say(f"no disk will be filled: a tmpfs cannot be mounted here: {error}")
            return None

    def _free_disk(self) -> None:
        if self._disk is not None:
            self._disk.free()

    def run(self) -> Outcome:
        """To its end. The outcome contains all failures."""
        compactions = {
            topic: Compactions(topic, self._life.url, self._tally, self._settings)
            for topic in TOPICS
        }
        passes = Passes(self._settings, self._clients, self._books, self._tally)
        self._cleanings = Cleanings(self._life.url, self._tally)
        try:
            self._prepare()
            for each in compactions.values():
                each.start()
            Faults(
                self._settings,
                self._life,
                self._disk,
                [*compactions.values()],
                self._tally,
                on_step=lambda: self._step(passes),
            ).run()
            passes.drain()
            self._say(f"{self._elapsed()}  the faults stop")
            Ending(
                self._settings,
                self._life,
                self._clients,
                self._books,
                compactions,
                self._cleanings,
                self._tally,
            ).run()
        except BrokerFailed as failure:
            self._tally.not_converged.append(f"the broker does not start: {failure}"[:2000])
        finally:
            for each in compactions.values():
                each.stop(0)
        self._note_clients(passes)
        return self._outcome()

    def _prepare(self) -> None:
        """Topics and the durable subscription are there before the first message."""
        with closing(Admin(self._life.url)) as admin:
            for topic in TOPICS:
                admin.create_topic(topic)
                if topic == BY_EVENT_TIME:
                    strategy = CompactionStrategy(name="event-time")
                    admin.update_policies(
                        topic=topic, values=Policies(compaction_strategy=strategy)
                    )
                # From now on nothing is trimmed that no compaction has seen.
                admin.trigger_compaction(topic)
            self._cleanings.create(admin)
            admin.create_subscription(AUDITED, AUDIT, MessageId.earliest)
        self._clients.start()
        self._life.broker.wait_for_compactor()

    def _step(self, passes: Passes) -> None:
        passes.go_on()
        self._cleanings.look()
        self._note_clients(passes)
        if time.monotonic() >= self._line_s:
            self._line_s = time.monotonic() + _LINE_EVERY_S
            sent, acknowledged = self._books.totals()
            self._say(
                f"{self._elapsed()}  "
                + self._tally.line(
                    f"sent {sent:,}, acknowledged {acknowledged:,}, lost {self._books.lost_count}"
                )
            )

    def _note_clients(self, passes: Passes) -> None:
        self._tally.passes = passes.judged
        self._tally.hanging |= self._clients.hanging() | passes.hanging

    def _elapsed(self) -> str:
        elapsed_s = int(time.monotonic() - self._began_s)
        return f"{elapsed_s // 60:3d}:{elapsed_s % 60:02d}"

    def _outcome(self) -> Outcome:
        verdict = Verdict(self._tally, self._books)
        wrong = verdict.wrong()
        kept = self._keep_data() if wrong or self._keep else None
        self._say(table(verdict))
        return Outcome(self._tally, self._books, wrong, kept)

    def _keep_data(self) -> Path:
        """Nothing writes to them any more."""
        self._clients.close()
        self._life.broker.close()
        self._free_disk()
        kept = self._folder / "kept"
        shutil.copytree(self._data_dir, kept, ignore=shutil.ignore_patterns("work"))
        return kept
