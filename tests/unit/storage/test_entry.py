"""Entry records and the native codec: round trips, and the effect of damage."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.storage.codec import decode
from ledgerfold.storage.compression import UNCOMPRESSED_BYTES_MAX, compress, decompress
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import (
    ENTRY_BYTES_MAX,
    HEADER_BYTES,
    HEADER_BYTES_MIN,
    Compression,
    EntryFields,
    build_entry,
    crc32c,
    entry_bytes_after_rebuild_max,
    has_header,
    read_header,
    rebuild_header,
    stamp,
    stamped_header,
    verify_sections,
)
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import (
    Corruption,
    IncompatibleFormat,
    InvalidRequest,
    MessageTooLarge,
)
from ledgerfold.storage.native import NativeBatchBuilder
from tests.support.ledgers import as_version_1

I64 = st.integers(-(2**63), 2**63 - 1)
MESSAGE = st.fixed_dictionaries(
    {"value": st.none() | st.binary(max_size=40), "key": st.none() | st.binary(max_size=10)},
    optional={
        "key_is_base64": st.booleans(),
        "properties": st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
        "event_time_ms": I64,
        "ordering_key": st.binary(min_size=1, max_size=4),
    },
)


def expected(message: dict[str, object], row: int, rows: int, last: int) -> StoredMessage:
    value, key = message["value"], message["key"]
    assert value is None or isinstance(value, bytes)
    assert key is None or isinstance(key, bytes)
    return StoredMessage(
        batch_index=row,
        batch_size=rows,
        key=key,
        key_is_base64=bool(message.get("key_is_base64")) and key is not None,
        value=value or b"",
        value_is_null=value is None,
        properties=message.get("properties", {}),  # type: ignore[arg-type]
        event_time_ms=message.get("event_time_ms", 0),  # type: ignore[arg-type]
        sequence_id=last - rows + 1 + row,
        ordering_key=message.get("ordering_key"),  # type: ignore[arg-type]
    )


@given(
    st.lists(MESSAGE, min_size=1, max_size=6),
    st.sampled_from(list(Compression)),
    st.integers(0, 2**40),
)
def test_a_batch_comes_back_as_it_was(
    messages: list[dict[str, object]], compression: Compression, sequence_id: int
) -> None:
    """Every attribute of every message, under every compression."""
    builder = NativeBatchBuilder("producer", b"schema")
    for message in messages:
        builder.add(**message)  # type: ignore[arg-type]
    entry = builder.build(sequence_id=sequence_id, publish_time_ms=7, compression=compression)
    header = check_entry(entry)
    batch = decode(entry, header)
    assert (header.message_count, header.publish_time_ms) == (len(messages), 7)
    assert (batch.producer_name, batch.schema_version) == ("producer", b"schema")
    assert list(batch.messages()) == [
        expected(message, row, len(messages), sequence_id) for row, message in enumerate(messages)
    ]


def test_a_plain_message_has_no_batch_index() -> None:
    """Published alone, not as a batch of one."""
    builder = NativeBatchBuilder("p")
    builder.add(b"v", key=b"k")
    entry = builder.build(sequence_id=3, publish_time_ms=1, plain=True)
    assert read_header(entry).is_plain
    assert [each.batch_index for each in decode(entry).messages()] == [-1]
    builder.add(b"w")
    with pytest.raises(InvalidRequest, match="one message"):
        builder.build(sequence_id=4, publish_time_ms=1, plain=True)


def test_sequence_ids_with_gaps_are_kept() -> None:
    """Either all messages name one or none does."""
    builder = NativeBatchBuilder("p")
    for sequence_id in (5, 9, 10):
        builder.add(b"v", sequence_id=sequence_id)
    entry = builder.build(sequence_id=10, publish_time_ms=1)
    assert [each.sequence_id for each in decode(entry).messages()] == [5, 9, 10]
    builder.add(b"v")
    with pytest.raises(InvalidRequest, match="Set a sequence id on all"):
        builder.build(sequence_id=11, publish_time_ms=1)


def sample() -> bytes:
    builder = NativeBatchBuilder("producer")
    builder.add(b"value one", key=b"k1", properties={"a": "b"})
    builder.add(None, key=b"k2", event_time_ms=12)
    return builder.build(sequence_id=1, publish_time_ms=1, compression=Compression.ZSTD)


ENTRY = sample()


@given(st.integers(0, len(ENTRY) - 1), st.integers(1, 255))
def test_a_changed_byte_is_found(at: int, change: int) -> None:
    """The checksums cover every byte of an entry."""
    damaged = bytearray(ENTRY)
    damaged[at] ^= change
    with pytest.raises(InvalidRequest):
        check_entry(bytes(damaged))
    with pytest.raises((Corruption, IncompatibleFormat)):
        verify_sections(bytes(damaged), read_header(bytes(damaged)))


@given(st.binary(max_size=200), st.binary(max_size=200), st.sampled_from(list(Compression)))
def test_random_sections_are_an_error_or_messages(
    keys: bytes, values: bytes, compression: Compression
) -> None:
    """A client may put anything under good checksums: decoding answers or raises one type."""
    fields = EntryFields(message_count=2, compression=compression)
    entry = build_entry(keys, values, fields)
    check_entry(entry)
    with contextlib.suppress(InvalidRequest):
        list(decode(entry).messages())


@given(st.integers(0, len(ENTRY) - HEADER_BYTES - 1), st.integers(1, 255))
def test_sections_with_a_changed_byte_are_an_error_or_messages(at: int, change: int) -> None:
    """As above, from something that is nearly good."""
    header = read_header(ENTRY)
    sections = bytearray(ENTRY[HEADER_BYTES:])
    sections[at] ^= change
    keys, values = bytes(sections[: header.key_bytes]), bytes(sections[header.key_bytes :])
    fields = EntryFields(message_count=2, compression=header.compression)
    with contextlib.suppress(InvalidRequest):
        list(decode(build_entry(keys, values, fields)).messages())


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(ENTRY) - 1])
def test_a_part_of_an_entry_is_refused(size: int) -> None:
    """Cut anywhere, or with a byte too many."""
    for frame in (ENTRY[:size], ENTRY + b"x"):
        with pytest.raises(InvalidRequest):
            check_entry(frame)


def test_a_newer_version_is_not_damage() -> None:
    """The header is good, but of a version that this build does not know."""
    body = b"\x03" + ENTRY[5:HEADER_BYTES_MIN]
    newer = crc32c(body).to_bytes(4, "little") + body + ENTRY[HEADER_BYTES_MIN:]
    for size in (HEADER_BYTES_MIN, HEADER_BYTES, len(newer)):
        with pytest.raises(IncompatibleFormat, match="format version 3"):
            read_header(newer[:size])


def test_a_build_for_version_1_does_not_report_version_2_as_damage() -> None:
    """It verifies 72 bytes and then the version: those bytes have a separate checksum."""
    assert int.from_bytes(ENTRY[:4], "little") == crc32c(ENTRY[4:HEADER_BYTES_MIN])


def test_an_entry_of_version_1_is_stored_as_version_2() -> None:
    """An older client's entry is valid, and no information is lost."""
    old = as_version_1(ENTRY)
    header = check_entry(old)
    assert (header.version, header.header_bytes) == (1, HEADER_BYTES_MIN)
    assert header.last_durable_entry_id == -1
    assert list(decode(old).messages()) == list(decode(ENTRY).messages())
    assert stamp(old, 12, 3, 5, 8, durable_entries=2) == stamp(ENTRY, 12, 3, 5, 8, 2)
    assert read_header(stamp(old, 12, 3, 5, 8, 2)).last_durable_entry_id == 1


@given(st.integers(0, HEADER_BYTES_MIN - 1), st.integers(1, 255))
def test_a_changed_byte_of_version_1_is_found(at: int, change: int) -> None:
    """Also if the version itself changed."""
    damaged = bytearray(as_version_1(ENTRY))
    damaged[at] ^= change
    with pytest.raises(Corruption):
        read_header(bytes(damaged))


@pytest.mark.parametrize(("version", "size"), [(1, HEADER_BYTES_MIN), (2, HEADER_BYTES)])
def test_a_header_at_the_end_of_a_block(version: int, size: int) -> None:
    """All of it is there, or it is not: of version 1 fewer bytes are needed."""
    entry = as_version_1(ENTRY) if version == 1 else ENTRY
    for left in (0, 4, 5, HEADER_BYTES_MIN - 1, HEADER_BYTES_MIN, HEADER_BYTES - 1, HEADER_BYTES):
        block = b"before" + entry[:left]
        assert has_header(block, 6) == (left >= size)
        if left >= size:
            assert read_header(block, 6).version == version
        else:
            with pytest.raises(Corruption, match="a header of"):
                read_header(block, 6)


def test_the_count_of_durable_entries_saturates() -> None:
    """A header may prove too little, never too much."""
    assert read_header(stamp(ENTRY, 12, 2**33, 5, 8, durable_entries=2**33)).durable_entries == (
        2**32 - 1
    )


def test_a_batch_that_a_rebuild_could_make_too_large_is_refused() -> None:
    """A rebuild adds a batch index for each message; an unbatched message is never rebuilt."""

    def entry(spare_bytes: int, messages: int) -> bytes:
        keys = bytes(ENTRY_BYTES_MAX - HEADER_BYTES - spare_bytes)
        return build_entry(keys, b"", EntryFields(message_count=messages))

    check_entry(entry(0, messages=1))
    rows = 100_000
    spare = entry_bytes_after_rebuild_max(0, rows)
    check_entry(entry(spare, rows))
    with pytest.raises(MessageTooLarge, match="A batch of 100000 messages"):
        check_entry(entry(spare - 1, rows))


@pytest.mark.parametrize(
    "fields",
    [
        EntryFields(message_count=0),
        EntryFields(message_count=1, codec=99),
        EntryFields(message_count=1, compression=99),
    ],
    ids=["no messages", "codec", "compression"],
)
def test_an_undecodable_entry_is_refused(fields: EntryFields) -> None:
    """At the door, before it is stored."""
    with pytest.raises(InvalidRequest):
        check_entry(build_entry(b"", b"", fields))


def test_stamping_changes_only_the_brokers_fields() -> None:
    """Position, append time, producer number."""
    before = read_header(ENTRY)
    stamped = stamp(ENTRY, 12, 3, append_time_ms=5, producer_number=8)
    after = read_header(stamped)
    verify_sections(stamped, after)
    assert stamped == stamped_header(before, 12, 3, 5, 8) + ENTRY[HEADER_BYTES:]
    changed = {"crc", "header_crc", "ledger_id", "entry_id", "append_time_ms", "producer_number"}
    assert {
        name for name, value in after._asdict().items() if value != getattr(before, name)
    } == changed


@pytest.mark.parametrize("version", [1, 2])
def test_a_rebuild_keeps_the_header_except_for_its_sections(version: int) -> None:
    """The rest of a batch after compaction keeps id, times, sequence id, producer and version."""
    stamped = stamp(ENTRY, 12, 3, append_time_ms=5, producer_number=8, durable_entries=3)
    before = read_header(stamped if version == 2 else as_version_1(stamped))
    after = read_header(rebuild_header(before, b"k", b"value", 1))
    assert (after.position, after.append_time_ms, after.producer_number) == ((12, 3), 5, 8)
    assert (after.version, after.durable_entries) == (version, before.durable_entries)
    assert after.message_count == 1
    assert (after.key_bytes, after.value_bytes) == (1, 5)


@pytest.mark.parametrize("compression", [each for each in Compression if each])
def test_a_compressed_section_has_its_stated_size_or_raises(compression: Compression) -> None:
    """A wrong size, a bomb, garbage, nothing: all refused."""
    section = compress(compression, b"a" * 1000)
    assert decompress(compression, section) == b"a" * 1000
    assert decompress(compression, compress(compression, b"")) == b""
    for wrong in (999, 1001, UNCOMPRESSED_BYTES_MAX + 1):
        with pytest.raises(InvalidRequest):
            decompress(compression, wrong.to_bytes(4, "little") + section[4:])
    for other in (compress(compression, b"a" * 2_000_000), compress(compression, b"")):
        with pytest.raises(InvalidRequest):
            decompress(compression, section[:4] + other[4:])
    for garbage in (b"", b"abc", b"\x05\0\0\0garbage"):
        with pytest.raises(InvalidRequest):
            decompress(compression, garbage)


def test_an_unknown_compression_is_refused() -> None:
    """Both ways."""
    for call in (compress, decompress):
        with pytest.raises(InvalidRequest, match="Unknown compression"):
            call(99, b"\x01\0\0\0x")
