"""Results of `what-if` as tables: sizes with units, and a mark for estimates."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.tables import Row, aligned
from ledgerfold.broker.cli.what_if.rows import (
    cleaning_row,
    compared_names,
    difference_row,
    replay_row,
    strategy_row,
)
from ledgerfold.broker.common.sizes import format_size
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.v1.what_if_pb2 import TopicWhatIf

_LEGEND = "~ estimated: entries that lose messages are assumed to shrink evenly"
# Fields that people do not need, or that are printed with the table.
_NOT_SHOWN = ("points", "bytes_estimated", "estimated", "why_no_run", "why_no_round")


def print_tables(result: TopicWhatIf, width: int | None) -> None:
    input_ = result.input
    if result.cleanings:
        print(
            f"{result.topic}: the log has {input_.messages} records in {input_.entries} batches "
            f"({format_size(input_.bytes)}, {input_.tombstones} tombstones)"
        )
        _print([cleaning_row(each) for each in result.cleanings], width)
        return
    print(
        f"{result.topic}: a run would read {input_.messages} messages "
        f"({format_size(input_.bytes)}, {input_.tombstones} tombstones, "
        f"{input_.null_keys} without a key)"
    )
    rows = [strategy_row(each) for each in result.forecasts]
    for row in rows:
        if "not_forecast" in row:
            print(f"{row['strategy']}: {row['not_forecast']}", file=sys.stderr)
    _print([row for row in rows if "not_forecast" not in row], width)
    if result.HasField("differences"):
        _print_differences(result, width)
    if result.replays:
        print("\nThe topic's history, replayed")
        _print([replay_row(each) for each in result.replays], width)


def _print_differences(result: TopicWhatIf, width: int | None) -> None:
    print(f"\n{counted(result.differences.keys, 'key differs', 'keys differ')}")
    names = compared_names(result)
    rows = [_survivor_row(difference_row(each, names)) for each in result.differences.listed]
    if rows:
        print(aligned(rows, width))


def _print(rows: Sequence[Row], width: int | None) -> None:
    if not rows:
        return
    print(aligned([shown(row) for row in rows], width))
    if any(row["estimated"] for row in rows):
        print(_LEGEND)
    for row in rows:
        why = row.get("why_no_run") or row.get("why_no_round")
        if why:
            what = row["when"] if "when" in row else row["settings"]
            print(f"{what}: none, because {why}")


def shown(row: Row) -> Row:
    """Formats a row.

    >>> shown({"bytes": 2048, "survivors": 3, "estimated": ["bytes"]})
    {'bytes': '~2.0 KiB', 'survivors': 3}
    """
    texts: dict[str, Any] = {}
    for name, value in row.items():
        if name not in _NOT_SHOWN:
            text = format_size(value) if name.endswith("bytes") else value
            is_estimated = name in row["estimated"]
            texts[name.removesuffix("_bytes")] = f"~{text}" if is_estimated else text
    return texts


def _survivor_row(row: Row) -> Row:
    """Returns a row with a column for each strategy."""
    texts: dict[str, Any] = {"key": row["key"]}
    for survivor in row["kept"]:
        last = "(gone)" if survivor["last"] is None else f"{survivor['last']} {survivor['value']}"
        more = f" (+{survivor['messages'] - 1})" if survivor["messages"] > 1 else ""
        texts[survivor["strategy"]] = last + more
    return texts
