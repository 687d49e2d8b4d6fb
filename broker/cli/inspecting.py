"""`info` and `segment dump`: looking inside, the latter without a broker."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import (
    add_answer,
    add_output,
    content,
    print_object,
    print_rows,
)
from ledgerfold.storage.message_ids import id_text
from ledgerfold.storage.paths import absolute_path

Commands = argparse._SubParsersAction


def add_info(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("info", help="the broker: version, durability, compactor")
    parser.set_defaults(run=_info)
    add_answer(parser)


def add_segment(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("segment", help="segment files", calls_broker=False)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    dump = verbs.add_parser(
        "dump", help="what a file holds, checksums verified", calls_broker=False
    )
    dump.add_argument("file", type=absolute_path, help="ledgers/N/N.log in a data directory")
    dump.add_argument("--messages", action="store_true", help="messages instead of entries")
    add_output(dump, ("table", "json", "jsonl"))
    dump.set_defaults(run=_dump)


def _info(options: argparse.Namespace) -> None:
    from ledgerfold.v1.admin_pb2 import CompactorState

    info = admin_of(options).broker_info()
    state = CompactorState.Name(info.compactor_state).removeprefix("COMPACTOR_STATE_").lower()
    print_object(
        options,
        {
            "version": info.version,
            "pid": info.pid,
            "data_dir": info.data_dir,
            "durability": info.durability,
            "started_ms": info.started_ms,
            "compactor": state,
            "compactor_pid": info.compactor_pid,
            "compactor_message": info.compactor_message,
            "streams": info.streams,
            "streams_max": info.streams_max,
            "streams_refused": info.streams_refused,
            "streams_ended": info.streams_ended,
            "unsent_bytes": info.unsent_bytes,
            "unsent_bytes_max": info.unsent_bytes_max,
        },
    )


def _dump(options: argparse.Namespace) -> None:
    rows = _messages(options.file) if options.messages else _entries(options.file)
    print_rows(options, rows)


def _whole_entries(path: Path) -> Iterator[tuple[Any, int, bytes]]:
    """Header, offset and bytes of each entry. Raises Corruption with file and offset."""
    from ledgerfold.storage.entry import verify_sections
    from ledgerfold.storage.segment import scan_headers

    content = path.read_bytes()
    for header, offset in scan_headers(content, str(path), len(content)):
        verify_sections(content, header, offset, str(path))
        yield header, offset, content[offset : offset + header.size_bytes]


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    from ledgerfold.storage.entry import Compression

    for header, offset, _ in _whole_entries(path):
        yield {
            "offset": offset,
            "id": str(header.position),
            "messages": header.message_count,
            "sequence_id": header.sequence_id,
            "producer": header.producer_number,
            "publish_time": header.publish_time_ms,
            "key_bytes": header.key_bytes,
            "value_bytes": header.value_bytes,
            "compression": Compression(header.compression).name.lower(),
        }


def _messages(path: Path) -> Iterator[dict[str, Any]]:
    from ledgerfold.storage.codec import decode, decoding

    for header, offset, entry in _whole_entries(path):
        with decoding(str(path), offset):
            messages = list(decode(entry, header).messages())
        for message in messages:
            value = None if message.value_is_null else message.value
            text = id_text(header.ledger_id, header.entry_id, batch_index=message.batch_index)
            yield {"id": text, **content(message.key, value)}
