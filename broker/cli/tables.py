"""Tables for people: named columns, numbers aligned right, limited width.

>>> print(aligned([{"run": 9, "note": "as it was"}, {"run": 10, "note": ""}]))
run  note
  9  as it was
 10

In a table that is too wide, the widest texts are cut, with a mark, or wrapped in columns that the
caller names. If the columns would become too narrow, each row is printed as a block of lines with a
name and a value.

>>> print(aligned([{"id": 1, "why": "a newer value of its key follows"}], 26, wrapped=("why",)))
id  why
 1  a newer value of its
    key follows

Texts are escaped: line breaks and terminal codes in a key or value have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

Row = Mapping[str, Any]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_GAP, _MARK = "  ", "…"
# The minimum width of a text column.
_CELLS_MIN = 20


def fields_of(source: object, names: str) -> dict[str, Any]:
    """Returns the attributes of these names, which blanks separate, as a row.

    >>> from fractions import Fraction
    >>> fields_of(Fraction(1, 3), "numerator denominator")
    {'numerator': 1, 'denominator': 3}
    """
    return {name: getattr(source, name) for name in names.split()}


def printable(text: str) -> str:
    """Escapes control characters, so that the text stays on one line: "a\\nb" for a line break."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def cut(text: str, width: int | None) -> str:
    """Cuts a line to `width` cells; None: not at all. Wide characters take two."""
    from rich.cells import cell_len, set_cell_size

    if width is None or cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + _MARK


def wrapped_lines(text: str, width: int) -> list[str]:
    """Wraps text into lines of `width` cells; splits only words that do not fit.

    >>> wrapped_lines("superseded by 1234567890123", 10)
    ['superseded', 'by', '1234567890', '123']
    """
    from rich.cells import cell_len, chop_cells

    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines += chop_cells(word, max(width, 2))
    return [line for line in lines if line] or [""]


def aligned(rows: Sequence[Row], width: int | None = None, *, wrapped: Collection[str] = ()) -> str:
    """Formats rows, at least one, in lines of up to `width` cells; None: no limit.

    `wrapped`: columns whose texts are wrapped instead of cut.
    """
    from rich.cells import cell_len

    names = list(rows[0])
    lines = [names, *([printable(str(row[name])) for name in names] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    right = [all(isinstance(row[name], int | float) for row in rows) for name in names]
    if width is not None:
        room = width - len(_GAP) * (len(names) - 1)
        limit = _text_limit(widths, right, room)
        if limit is None:
            return _blocks(names, lines[1:], width, wrapped)
        widths = [
            each if is_number else min(each, limit)
            for each, is_number in zip(widths, right, strict=True)
        ]
    broken = (_broken(line, names, widths, wrapped) for line in lines)
    return "\n".join(_line(line, widths, right) for parts in broken for line in parts)


def _broken(
    values: Sequence[str], names: Sequence[str], widths: Sequence[int], wrapped: Collection[str]
) -> Iterable[Sequence[str]]:
    """Returns a row as one line or several."""
    if not wrapped:
        return [values]
    cells = [
        wrapped_lines(value, width) if name in wrapped else [value]
        for name, value, width in zip(names, values, widths, strict=True)
    ]
    return zip_longest(*cells, fillvalue="")


def _text_limit(widths: Sequence[int], right: Sequence[bool], room: int) -> int | None:
    """Returns the maximum width of a text column so that all columns fit; None if it is too
    small.
    """
    room -= sum(width for width, is_number in zip(widths, right, strict=True) if is_number)
    texts = sorted(width for width, is_number in zip(widths, right, strict=True) if not is_number)
    # The narrowest column first: the others share the space that it does not use.
    for at, width in enumerate(texts):
        share = room // (len(texts) - at)
        if width > share:
            return share if share >= _CELLS_MIN else None
        room -= width
    return max(texts, default=0) if room >= 0 else None


def _line(values: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    from rich.cells import cell_len

    padded = []
    for value, width, to_right in zip(values, widths, right, strict=True):
        shown = cut(value, width)
        space = " " * (width - cell_len(shown))
        padded.append(space + shown if to_right else shown + space)
    return _GAP.join(padded).rstrip()


def _blocks(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int, wrapped: Collection[str]
) -> str:
    longest = max(map(len, names)) + len(_GAP)

    def lines(name: str, value: str) -> Iterator[str]:
        head = f"{name:<{longest}}"
        if name not in wrapped:
            yield cut(f"{head}{value}".rstrip(), width)
            return
        for line in wrapped_lines(value, max(width - longest, 8)):
            yield f"{head}{line}".rstrip()
            head = " " * longest

    blocks = (
        "\n".join(
            line for name, value in zip(names, row, strict=True) for line in lines(name, value)
        )
        for row in rows
    )
    return "\n\n".join(blocks)
