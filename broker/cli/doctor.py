"""`doctor`: checks whether this machine can run a broker, and advises on each problem.

    ledgerfold doctor --data data

Each check is a line: `ok`; `warning`, if it limits or slows a broker; `problem`, if it prevents or
endangers one. The exit code is 1 if there is a problem. The command changes nothing and needs no
broker; if a broker runs on the data directory, the output names it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ledgerfold.broker.cli import doctor_data, doctor_machine
from ledgerfold.broker.cli.doctor_check import Check, State
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.output import ROWS, print_rows
from ledgerfold.broker.cli.serving import DEFAULT_LISTEN
from ledgerfold.broker.cli.units import DIR
from ledgerfold.broker.cli.verbs import Verbs, argument, repeated

COMMANDS = Verbs()


@COMMANDS.verb(
    "doctor",
    "check whether this machine can run a broker",
    description="Checks Python, Java, ports, the disk, limits, the clock and the data directory, "
    "and prints how to solve each problem. Exits with 1 if there is one. Changes nothing.",
    calls_broker=False,
)
@argument("--data", "also check this data directory, and its disk", **DIR)
@repeated(
    "--listen HOST:PORT", f"an address that must be free; may be repeated; default {DEFAULT_LISTEN}"
)
@ROWS
def _doctor(options: argparse.Namespace) -> int:
    checks = list(_checks(options.data, options.listen or [DEFAULT_LISTEN]))
    print_rows(options, (check.row for check in checks), wrapped=("found", "what_to_do"))
    return FAILED if any(check.state is State.PROBLEM for check in checks) else DONE


def _checks(data_dir: Path | None, listen: list[str]) -> Iterator[Check]:
    yield doctor_machine.python(sys.version_info[:3])
    yield doctor_machine.java(os.environ)
    yield doctor_machine.pyspark()
    owner = None if data_dir is None else doctor_data.owner_of(data_dir)
    serving = owner.pid if owner is not None and owner.runs else None
    for address in listen:
        yield doctor_machine.port(address, serving)
    yield doctor_machine.descriptors()
    yield doctor_machine.clock()
    disk = doctor_data.nearest_folder(data_dir or Path.cwd())
    yield doctor_data.space(disk)
    yield doctor_data.sync_time(disk)
    if data_dir is not None:
        yield doctor_data.permissions(data_dir)
        yield doctor_data.version(data_dir, owner)
        yield doctor_data.workers(data_dir, owner)
