"""The table at the end of a round, and its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.torture.bookkeeping import Books
from tests.torture.tally import Tally
from tests.torture.victims import BROKER, JVM, PYTHON, WORKER

_WIDTH = 34


class Verdict(NamedTuple):
    """All that was counted."""

    tally: Tally
    books: Books

    def wrong(self) -> list[str]:
        """Describes the counts that should be zero and are not; empty: the round was passed."""
        books = self.books
        sent, acknowledged = books.totals()
        found = {
            "lost": books.lost_count,
            "duplicated": len(books.duplicated),
            "out of order": len(books.disordered),
            "at another offset": len(books.moved),
            "read but never sent so": len(books.foreign),
            "sent and never acknowledged": sent - acknowledged,
            "errors that no fault explains": books.errors.total(),
        }
        return [f"{count} {what}" for what, count in found.items() if count] + self.tally.wrong()


def table(verdict: Verdict) -> str:
    """For people."""
    return "\n".join(_lines(verdict))


def _row(what: str, value: object, more: str = "") -> str:
    return f"{what:<{_WIDTH}}{value!s:>12}  {more}".rstrip()


def _lines(verdict: Verdict) -> Iterator[str]:
    tally, books = verdict
    sent, acknowledged = books.totals()
    kinds = ", ".join(f"{kind} {tally.kills[kind]}" for kind in (BROKER, WORKER, JVM, PYTHON))
    yield _row("kill -9", tally.kills.total(), kinds)
    yield _row("disk filled", tally.fillings)
    yield _row("starts", tally.starts, f"refused for want of room {tally.starts_without_room}")
    yield _row("starts that failed", tally.starts_failed)
    yield _row("messages sent", f"{sent:,}")
    yield _row("messages acknowledged", f"{acknowledged:,}")
    missed = ", ".join(
        f"{where} {count}" for where, count in books.missed_by.most_common() if count
    )
    yield _row("LOST", books.lost_count, missed and f"missed first by: {missed}")
    yield _row("DUPLICATED", len(books.duplicated))
    yield _row("out of order", len(books.disordered))
    yield _row("read but never sent so", len(books.foreign))
    yield _row("at another offset", len(books.moved))
    yield _row("kills that left damage", tally.damaged)
    yield _row("cleanings seen", tally.cleanings)
    yield _row("passes over the compacted view", tally.passes)
    runs = ", ".join(f"{reason} {count}" for reason, count in tally.runs.most_common())
    yield _row("runs", tally.runs.total(), runs)
    yield _row("runs that never ended", tally.runs_never_ended)
    yield _row("compactors that hung", tally.workers_never_ready)
    yield _row("clients that hung", len(tally.hanging), ", ".join(sorted(tally.hanging)))
    yield _row("errors that no fault explains", books.errors.total())
    yield _row("processes left behind", tally.left_behind)
    yield _row("checks at the end that failed", len(tally.not_converged))
    for each in books.lost():
        yield f"  lost of {each}"
    for text, count in books.errors.most_common(10):
        yield f"  {count} x {text}"
    for text in (*tally.texts, *tally.not_converged):
        yield f"  {text}"
