"""`serve --import FILE`: topics that a start adds to the data directory, from topic archives.

An existing topic is not changed, so a restart with the same options changes nothing. If an archive
cannot be imported, the start fails, and no part of the archive is imported
(storage/topic_archive.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from ledgerfold.storage.errors import InvalidRequest, TopicExists
from ledgerfold.storage.files import Files
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import SNAPSHOT_RECORDS
from ledgerfold.storage.text import counted

_log = logging.getLogger(__name__)


def check_archives(paths: Iterable[Path]) -> None:
    """Raises FileNotFoundError, and InvalidRequest for a file that `topics export` did not
    write.
    """
    begin = SNAPSHOT_RECORDS.encode()
    for path in paths:
        with path.open("rb") as file:
            if file.read(len(begin)) != begin:
                raise InvalidRequest(f"{path} is not a file that `topics export` wrote.")


def import_topics(
    paths: Sequence[Path], store: LedgerStore, metadata: MetadataStore, files: Files
) -> None:
    """Imports the archives whose topics do not exist. Raises StorageError, NotAllowed.

    The directory was recovered, and no broker has read it yet.
    """
    if not paths:
        return
    # Imported only if there are some: other starts need nothing of it.
    from ledgerfold.storage.topic_archive import TopicImport

    for path in paths:
        try:
            imported = TopicImport(path, store.ledgers_dir, metadata, files).run()
        except TopicExists as error:
            _log.info("%s is not imported: %s", path, error)
            continue
        messages = counted(imported.messages, "message")
        _log.info("Imported %s from %s: %s", imported.topic, path, messages)
