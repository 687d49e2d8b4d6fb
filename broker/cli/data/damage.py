"""`verify` and `repair`: check a data directory, and repair it as far as possible, without a
broker.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.exit_codes import DAMAGED, DONE
from ledgerfold.broker.cli.output import output, print_document, wants_table, width_of
from ledgerfold.broker.cli.tables import Row, aligned
from ledgerfold.broker.cli.verbs import Verbs, argument, flag, together
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.storage.files import Files
    from ledgerfold.storage.lock import DirectoryLock, ReadLock
    from ledgerfold.storage.repair.steps import RepairPlan, Step
    from ledgerfold.storage.repair.survey import Survey
    from ledgerfold.storage.repair.verify import Finding
    from ledgerfold.storage.rocks_reading import StoredPairs

COMMANDS = Verbs()
_DATA = together(
    argument("data DATA", "the data directory, as in `serve --data`", type=absolute_path),
    output("table", "json"),
)


@COMMANDS.verb(
    "verify",
    "check every byte and record of a data directory",
    _DATA,
    description="Checks every record, reference, checksum and file of a data directory that no "
    "broker has open. Changes nothing. Exits with 6 if anything is damaged.",
    calls_broker=False,
)
def _verify(options: argparse.Namespace) -> int:
    from ledgerfold.storage.repair.verify import findings, totals

    began = time.monotonic()
    from ledgerfold.storage.lock import ReadLock

    _check_is_data(options.data)
    with ReadLock(options.data, "Stop that process first.") as lock:
        survey = _survey(options.data, _stored(options.data), lock)
        all_findings, summary = [*findings(survey), *_repairs(options.data)], str(totals(survey))
    _print(options, map(_row, all_findings))
    damaged = sum(not each.is_note for each in all_findings)
    ending = f"{damaged} damaged, {counted(len(all_findings) - damaged, 'note')}; {summary}"
    _say(options, f"{ending}; {time.monotonic() - began:.1f} seconds")
    if damaged:
        _say(options, f"`ledgerfold repair {options.data}` shows what can be done.")
    return DAMAGED if damaged else DONE


@COMMANDS.verb(
    "repair",
    "remove damaged data from a data directory, and keep the rest",
    _DATA,
    description="Shows the repair steps and what they would lose; applies them with --yes. "
    "Backs up everything that it changes under DATA/repairs. Exits with 6 if the metadata "
    "have lost records, even after they were rebuilt from the ledgers.",
    calls_broker=False,
)
@flag("--yes", "apply the repair")
@flag(
    "--rebuild-metadata",
    "with --yes, if the metadata have lost records: rebuild them from the ledgers",
)
def _repair(options: argparse.Namespace) -> int:
    from ledgerfold.storage.lock import DirectoryLock
    from ledgerfold.storage.repair.plan import make_plan
    from ledgerfold.storage.repair_manifest import unfinished_repairs
    from ledgerfold.version import __version__

    _check_is_data(options.data)
    with DirectoryLock(options.data, __version__) as lock:
        stored, now_ms = _stored(options.data), time.time_ns() // 1_000_000
        plan = make_plan(_survey(options.data, stored, lock), now_ms)
        refused = [{**_step_row(each), "what": f"unchanged: {each.what}"} for each in plan.refused]
        _print(options, [*map(_step_row, plan.steps), *refused])
        missing = _missing_option(options, plan)
        if not missing:
            _apply(options, plan, stored, now_ms)
    if missing and (plan.steps or unfinished_repairs(options.data, _files())):
        _say(options, f"{_loss(plan.steps)} Nothing was changed: {missing}")
        return DAMAGED
    return DAMAGED if plan.refused or plan.rebuilds_metadata else DONE


def _missing_option(options: argparse.Namespace, plan: RepairPlan) -> str:
    """Returns why the repair is not applied, and the options to add; "" if they are given."""
    if plan.rebuilds_metadata and not options.rebuild_metadata:
        return (
            "the metadata have lost records, which cannot be listed. If you have a backup of "
            f"{options.data}, use it. To rebuild the metadata from the ledgers, add --yes "
            "--rebuild-metadata."
        )
    return "" if options.yes else "add --yes to apply the repair."


def _apply(options: argparse.Namespace, plan: RepairPlan, stored: StoredPairs, now_ms: int) -> None:
    from ledgerfold.storage.owner_only import narrow
    from ledgerfold.storage.repair.repair import Repair
    from ledgerfold.storage.rocks import RocksKeyValue

    narrow(options.data)
    repair = Repair(
        options.data,
        stored.pairs,
        RocksKeyValue,
        _files(),
        now_ms,
        is_unusable=stored.is_unusable,
    )
    folder = repair.do(plan)
    if folder is not None:
        _say(
            options,
            f"{_loss(plan.steps)} Done; {folder} has a backup of the previous state, and a list.",
        )


def _loss(steps: list[Step]) -> str:
    from ledgerfold.storage.repair.repair import messages_lost

    known, may_be_more = messages_lost(steps)
    more = ", and others that cannot be counted" if may_be_more else ""
    return (
        f"{counted(known, 'message')} lost{more}."
        if known or may_be_more
        else "No message is lost, as far as the files show."
    )


# -- the directory ---------------------------------------------------------------------------


def _check_is_data(data: Path) -> None:
    """Raises FileNotFoundError."""
    from ledgerfold.storage.names import ledgers_dir, metadata_dir

    if not data.exists():
        raise FileNotFoundError(f"{data} does not exist.")
    if not (metadata_dir(data).is_dir() or ledgers_dir(data).is_dir()):
        missing = str(metadata_dir(data))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), missing)


def _stored(data: Path) -> StoredPairs:
    from ledgerfold.storage.names import metadata_dir
    from ledgerfold.storage.rocks_reading import read_pairs

    return read_pairs(metadata_dir(data))


def _survey(data: Path, stored: StoredPairs, lock: DirectoryLock | ReadLock) -> Survey:
    from ledgerfold.storage.repair.survey import take

    return take(
        data,
        stored.pairs,
        _files(),
        stored.damage,
        is_tail=stored.is_tail,
        is_same_boot=lock.is_same_boot,
    )


def _files() -> Files:
    from ledgerfold.storage.files import REAL

    return REAL


def _repairs(data: Path) -> list[Finding]:
    from ledgerfold.storage.repair.verify import Finding
    from ledgerfold.storage.repair_manifest import unfinished_repairs

    return [
        Finding(
            "repair",
            "a completed repair",
            "an incomplete one; repeat it",
            path=f"repairs/{name}",
            is_note=True,
        )
        for name in unfinished_repairs(data, _files())
    ]


# -- printing --------------------------------------------------------------------------------


def _row(finding: Finding) -> Row:
    return {
        "kind": finding.kind,
        "level": "note" if finding.is_note else "damage",
        "topic": finding.topic,
        "ledger": finding.ledger_id if finding.ledger_id >= 0 else "",
        "file": finding.path,
        "byte": finding.offset if finding.offset >= 0 else "",
        "expected": finding.expected,
        "found": finding.found,
    }


def _step_row(step: Step) -> Row:
    return {
        "topic": step.topic,
        "ledger": step.ledger_id if step.ledger_id >= 0 else "",
        "entries": step.entries,
        "messages_lost": "unknown" if step.messages is None else step.messages,
        "what": step.what,
    }


def _print(options: argparse.Namespace, rows: Iterable[Row]) -> None:
    """Prints a table, or one JSON array, with null for absent values."""
    listed = list(rows)
    if wants_table(options):
        if listed:
            print(aligned(listed, width_of(options)))
        return
    nothing = {"": None, "unknown": None}
    print_document(
        [{name: nothing.get(value, value) for name, value in row.items()} for row in listed]
    )


def _say(options: argparse.Namespace, sentence: str) -> None:
    """Prints a sentence for people: to standard error if standard output gets JSON."""
    print(sentence, file=sys.stdout if wants_table(options) else sys.stderr)
