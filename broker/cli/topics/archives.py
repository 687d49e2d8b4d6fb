"""`topics export` and `topics import`: a topic with everything, as one file.

    ledgerfold topics export orders orders.topic --data DATA
    ledgerfold topics import orders.topic --data OTHER

The archive has the raw ledgers, the compacted one, the horizon, cursors, producers, policies,
schemas and the history of runs (storage/topic_archive.py). The topic has the same message ids after
the import. Both work without a broker.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from ledgerfold.broker.cli.connecting import TOPIC, refuse_url
from ledgerfold.broker.cli.ending import Interrupts, removed_on_failure
from ledgerfold.broker.cli.verbs import Verbs, argument, flag
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

VERBS = Verbs()


@VERBS.verb("export", "write a topic with its subscriptions and policies to a file", TOPIC)
@argument("file", "the new file")
@argument(
    "--data DIR",
    "the data directory, which no broker serves, or a snapshot",
    type=absolute_path,
    required=True,
)
@flag("--overwrite", "replace the file if it exists")
def _export(options: argparse.Namespace) -> None:
    from ledgerfold.broker.common.clock import WallClock
    from ledgerfold.broker.common.names import persistent_topic
    from ledgerfold.frames.archive import archive_of
    from ledgerfold.storage.files import Files, replace_file

    refuse_url(options, "topics export")
    topic, path = persistent_topic(options.topic, "exported"), absolute_path(options.file)
    if path.exists() and not (options.overwrite and path.is_file()):
        raise InvalidRequest(f"{path} exists: give another name, or --overwrite for a file.")
    files = Files(attempt=os.getpid())
    with (
        removed_on_failure(path, files),
        archive_of(options.data, topic, WallClock().now_ms()) as blocks,
    ):
        replace_file(path, blocks, files)
    print(f"{topic} exported to {path}: {path.stat().st_size:,} bytes", file=sys.stderr)


@VERBS.verb("import", "add an exported topic to a data directory, with the same message ids")
@argument("file", "the file that `topics export` wrote")
@argument(
    "--data DIR", "the data directory, which no broker serves", type=absolute_path, required=True
)
def _import(options: argparse.Namespace) -> None:
    from ledgerfold.broker.common.clock import WallClock
    from ledgerfold.broker.common.settings import BrokerSettings
    from ledgerfold.broker.server.data_directory import held, recovered
    from ledgerfold.broker.server.seeding import check_archives
    from ledgerfold.storage.files import REAL
    from ledgerfold.storage.topic_archive import TopicImport

    refuse_url(options, "topics import")
    data, path = options.data, absolute_path(options.file)
    if not path.is_file():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    check_archives([path])
    data.mkdir(parents=True, exist_ok=True)
    settings = BrokerSettings(data_dir=data)
    with Interrupts(signal.SIGTERM), held(data) as (metadata, lock):
        store = recovered(settings, metadata, lock, REAL, WallClock().now_ms)
        try:
            imported = TopicImport(path, store.ledgers_dir, metadata, REAL).run()
        except BaseException:
            print(f"ledgerfold: Nothing of {path} was imported.", file=sys.stderr)
            raise
    print(
        f"{imported.topic} imported: {counted(imported.ledgers, 'ledger')}, "
        f"{counted(imported.messages, 'message')}",
        file=sys.stderr,
    )
