"""A Kafka log as text: the batches to append, and the batches that must remain.

    0:A=a0                   a record at offset 0, a batch of its own      A=a0   at any offset
    [1:B=b0 2:A=∅]           one batch; ∅ is a null value, ~ no key
    0..2[1:B=b0]             one that lost records: its offsets are those of the batch
    2:{} 0..2:{}             a batch of which the header is left
    1:A=a@500                with a timestamp; all times are ms since the case began
    1:A=∅ ~9000              the batch before has this delete horizon; ~none: it has none
    3:COMMIT1 4:ABORT1       markers, of producer 1
    [pid1 0:A=a]             of an idempotent producer; [txn1 0:A=a] in a transaction
    |                        a segment ends; |* the active segment begins

Words before a batch's records are attributes: `seq:5 epoch:1 codec:gzip`; `follow` for a batch that
is appended by a follower, at the leader's offsets; `coordinator` for one by a coordinator. Omitted
parts are not compared, and neither are bars. A series repeats everything since the previous series,
or since the line's start: `k<n>=<n> | for n=0..3 a=1`.

    >>> from tests.cases.lexer import Cursor, Place, tokens
    >>> line = "k<n>=v | for n=1..2 0..2[1:b=x] ~99 3:ABORT7 4:{} |* 7:A=∅"
    >>> log = parse_log(Cursor(tokens(line, 1, 1, "-"), Place("-", 1, 99)))
    >>> print(log)
    k1=v | k2=v | 0..2[1:b=x] ~99 3:ABORT7 4:{} |* 7:A=∅
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tests.cases.lexer import WORD, Cursor, Token
from tests.cases.logs import CODECS, NO_HORIZON, ORIGINS, Bar, LogBatch, LogRecord, LogText
from tests.cases.series import Numbers, fill, parse_series, value_bytes
from tests.cases.writing import NO_KEY, NULL

_OFFSET = re.compile(r"(-?\d+):(.*)", re.DOTALL)
_SPAN = re.compile(r"(?:(\d+)\.\.)?(\d+)(:?)")
_MARKER = re.compile(r"(?:(\d+):)?(COMMIT|ABORT)(\d*)")
_HORIZON = re.compile(r"~(-?\d+|none)")
_PRODUCER = re.compile(r"(pid|txn)(\d+)")
_FIELD = re.compile(r"(seq|epoch|codec):(\w+)")

Maker = Callable[[Numbers], LogBatch | Bar]


def parse_log(cursor: Cursor) -> LogText:
    """Parses a log up to `->`, `as` or the end. Raises NotationError."""
    items: list[LogBatch | Bar] = []
    makers: list[Maker] = []
    while not (cursor.is_done or cursor.sees("->") or cursor.sees("as")):
        if cursor.sees("for"):
            items += _expand(makers, parse_series(cursor))
            makers = []
        elif cursor.skip("|"):
            makers.append(_bar(Bar(cursor.skip("*"))))
        elif not _is_horizon(cursor, makers):
            makers.append(_batch(cursor))
    return LogText(tuple(items + _expand(makers, [{}])))


def _bar(bar: Bar) -> Maker:
    return lambda numbers: bar


def _expand(makers: Sequence[Maker], series: Sequence[Numbers]) -> list[LogBatch | Bar]:
    return [make(numbers) for numbers in series for make in makers]


def _is_horizon(cursor: Cursor, makers: list[Maker]) -> bool:
    """Consumes `~99` and applies it to the previous batch."""
    if cursor.sees_pair() or not cursor.sees(WORD) or not cursor.peek().text.startswith(NO_KEY):
        return False
    token = cursor.take(WORD)
    if not makers:
        raise token.place.error("a delete horizon stands behind its batch")
    make = makers.pop()

    def with_horizon(numbers: Numbers) -> LogBatch | Bar:
        match = _HORIZON.fullmatch(fill(token, numbers))
        batch = make(numbers)
        if match is None or isinstance(batch, Bar):
            raise token.place.error(f"{token.text!r} is no delete horizon: ~<ms>, behind a batch")
        horizon = NO_HORIZON if match[1] == "none" else int(match[1])
        return LogBatch(**{**vars(batch), "horizon_ms": horizon})

    makers.append(with_horizon)
    return True


def _batch(cursor: Cursor) -> Maker:
    """Parses `0..2[...]`, `[...]`, `2:{}`, `2:ABORT1`, `1:A=a`."""
    if cursor.sees("["):
        return _bracketed(cursor, None)
    if cursor.sees_pair():
        return _alone(_record(cursor))
    head = cursor.take(WORD)
    if cursor.sees("[") and not _MARKER.fullmatch(head.text):
        return _bracketed(cursor, head)
    if cursor.skip("{"):
        cursor.take("}")
        return lambda numbers: LogBatch((), *_span(head, numbers))
    if cursor.sees_pair() and head.text.endswith(":"):
        return _alone(_record(cursor, head))
    return lambda numbers: _marker(head, fill(head, numbers))


def _marker(head: Token, text: str) -> LogBatch:
    match = _MARKER.fullmatch(text)
    if match is None:
        raise head.place.error(
            f"{text!r} is no batch: 0:A=a, [0:A=a 1:B=∅], 0..2[1:B=b], 2:{{}}, 3:COMMIT1, 3:ABORT1"
        )
    at = int(match[1]) if match[1] else None
    return LogBatch((), at, at, match[2].lower(), int(match[3]) if match[3] else None)


def _span(head: Token, numbers: Numbers) -> tuple[int, int]:
    match = _SPAN.fullmatch(fill(head, numbers))
    if match is None:
        raise head.place.error(f"{head.text!r} is no span of offsets: 2 or 0..2")
    return int(match[1] or match[2]), int(match[2])


RecordMaker = Callable[[Numbers], LogRecord]


def _alone(make: RecordMaker) -> Maker:
    def batch(numbers: Numbers) -> LogBatch:
        record = make(numbers)
        return LogBatch((record,), record.offset, record.offset)

    return batch


def _bracketed(cursor: Cursor, head: Token | None) -> Maker:
    cursor.take("[")
    said: dict[str, int | str | bool] = {}
    while cursor.sees(WORD) and not cursor.sees_pair() and not _OFFSET.match(cursor.peek().text):
        said.update(_attribute(cursor.take(WORD)))
    makers: list[RecordMaker] = []
    series: list[Numbers] = [{}]
    while not cursor.sees("]"):
        if cursor.sees("for"):
            series = parse_series(cursor)
            break
        makers.append(_record(cursor))
    cursor.take("]")

    def batch(numbers: Numbers) -> LogBatch:
        records = tuple(make(numbers | more) for more in series for make in makers)
        if not records:
            raise cursor.place.error("a batch has records; of none only the header is left: 2:{}")
        span = records[0].offset, records[-1].offset
        if head is not None:
            span = _span(head, numbers)
        return LogBatch(records, *span, **said)  # type: ignore[arg-type]

    return batch


def _attribute(token: Token) -> dict[str, int | str | bool]:
    if token.text in ORIGINS:
        return {"origin": ORIGINS[token.text]}
    if match := _PRODUCER.fullmatch(token.text):
        return {"pid": int(match[2]), "is_transactional": match[1] == "txn"}
    match = _FIELD.fullmatch(token.text)
    if match is None or (match[1] == "codec" and match[2] not in CODECS):
        raise token.place.error(
            f"{token.text!r} says nothing of a batch: pid1, txn1, seq:0, epoch:0, follow, "
            f"coordinator, codec:{'|'.join(CODECS)}"
        )
    if match[1] == "codec":
        return {"codec": match[2]}
    return {"sequence" if match[1] == "seq" else "epoch": int(match[2])}


def _record(cursor: Cursor, head: Token | None = None) -> RecordMaker:
    """Parses a record; `head`: its offset, if the key is quoted: `0:"a key"=v`."""
    key = cursor.take_name()
    if head is None and key.kind == WORD and key.text.endswith(":") and not cursor.sees("="):
        head, key = key, cursor.take_name()
    cursor.take("=")
    value = cursor.take_name()
    time = cursor.take(WORD) if cursor.skip("@") else None

    def record(numbers: Numbers) -> LogRecord:
        text, offset = fill(key, numbers), None
        if head is not None:
            offset = int(fill(head, numbers).removesuffix(":"))
        elif key.kind == WORD and (match := _OFFSET.fullmatch(text)):
            offset, text = int(match[1]), match[2]
        is_plain = key.kind == WORD
        return LogRecord(
            None if is_plain and text == NO_KEY else value_bytes(key, text),
            None if value[:2] == (WORD, NULL) else value_bytes(value, fill(value, numbers)),
            offset,
            None if time is None else int(fill(time, numbers)),
        )

    return record
