"""`info`, `clock` and `segment dump`: a broker, its time, and a segment file without a broker."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import ANSWER, ROWS, content, print_object, print_rows
from ledgerfold.broker.cli.tables import fields_of
from ledgerfold.broker.cli.units import parse_moment_ms, parse_time_ms
from ledgerfold.broker.cli.verbs import Verbs, argument, flag
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import id_text
from ledgerfold.storage.paths import absolute_path

BROKER = Verbs()


@BROKER.verb("info", "show the broker's version, durability, compactor", ANSWER)
def _info(options: argparse.Namespace) -> None:
    from ledgerfold.v1.admin_pb2 import CompactorState

    info = admin_of(options).broker_info()
    state = CompactorState.Name(info.compactor_state).removeprefix("COMPACTOR_STATE_").lower()
    print_object(
        options,
        {
            **fields_of(info, "version pid data_dir durability started_ms"),
            "compactor": state,
            **fields_of(info, "compactor_pid compactor_message"),
            **fields_of(info, "streams streams_max streams_refused streams_ended"),
            **fields_of(info, "unsent_bytes unsent_bytes_max"),
        },
    )


CLOCK = BROKER.command("clock", "show the broker's time, or move its manual clock")


@CLOCK.verb("show", "show the broker's time", ROWS)
def _show(options: argparse.Namespace) -> None:
    _print_time(options, admin_of(options).clock().now_ms)


@CLOCK.verb("set", "move the clock to a later time, and run the work that becomes due")
@argument("time", "ISO 8601, or ms since the epoch", type=parse_moment_ms)
@ROWS
def _set(options: argparse.Namespace) -> None:
    _print_time(options, admin_of(options).move_clock(to_ms=options.time))


@CLOCK.verb("advance", "move the clock forward, and run the work that becomes due")
@argument("by", "500ms, 10s, 5m, 2h, 3d or 1w", type=parse_time_ms)
@ROWS
def _advance(options: argparse.Namespace) -> None:
    _print_time(options, admin_of(options).move_clock(advance_ms=options.by))


def _print_time(options: argparse.Namespace, now_ms: int) -> None:
    now = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    row = {"now": now, "now_ms": now_ms}
    if options.output == "json":
        print_object(options, row)
    else:
        print_rows(options, [row])


FILES = Verbs()
SEGMENT = FILES.command("segment", "inspect segment files", calls_broker=False)


@SEGMENT.verb("dump", "list the entries of a file, with checksums verified", calls_broker=False)
@argument("file", "ledgers/N/N.log in a data directory", type=absolute_path)
@flag("--messages", "list messages instead of entries")
@ROWS
def _dump(options: argparse.Namespace) -> None:
    rows = _messages(options.file) if options.messages else _entries(options.file)
    print_rows(options, rows)


def _whole_entries(path: Path) -> Iterator[tuple[Any, int, bytes, list[int]]]:
    """Yields header, offset and bytes of each entry, and its dead rows. Raises Corruption with file
    and offset.
    """
    from ledgerfold.storage.deletion_vector import DeletionVector, place_of
    from ledgerfold.storage.entry import FORMAT_VERSION, verify_sections
    from ledgerfold.storage.names import deletion_vector_path
    from ledgerfold.storage.segment import scan_headers

    content, beside = path.read_bytes(), Path(deletion_vector_path(str(path)))
    # The version of the first entry, after its checksum.
    if content and content[4:5] not in [bytes([each]) for each in range(1, FORMAT_VERSION + 1)]:
        raise InvalidRequest(f"{path} is not a segment file, such as ledgers/N/N.log.")
    vector = None
    if beside != path and beside.exists():
        vector = DeletionVector.parse(beside.read_bytes(), str(beside))
    for header, offset in scan_headers(content, str(path), len(content)):
        verify_sections(content, header, offset, str(path))
        index = None if vector is None else place_of(vector, header, offset, str(path))
        dead = [] if vector is None or index is None else vector.dead_rows(index)
        yield header, offset, content[offset : offset + header.size_bytes], dead


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    from ledgerfold.storage.entry import Compression

    for header, offset, _, dead in _whole_entries(path):
        yield {
            "offset": offset,
            "id": str(header.position),
            "messages": header.message_count,
            "dead": len(dead),
            "sequence_id": header.sequence_id,
            "producer": header.producer_number,
            "publish_time": header.publish_time_ms,
            "key_bytes": header.key_bytes,
            "value_bytes": header.value_bytes,
            "compression": Compression(header.compression).name.lower(),
        }


def _messages(path: Path) -> Iterator[dict[str, Any]]:
    from ledgerfold.storage.codec import decode, decoding

    for header, offset, entry, dead in _whole_entries(path):
        with decoding(str(path), offset):
            hidden = set(dead)
            for row, message in enumerate(decode(entry, header).messages()):
                if row in hidden:
                    continue
                value = None if message.value_is_null else message.value
                text = id_text(header.ledger_id, header.entry_id, batch_index=message.batch_index)
                yield {"id": text, **content(message.key, value)}
