"""Everything that a topic holds is shown as text; every request gets an answer."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from ledgerfold.broker.page.messages import shown_messages
from ledgerfold.broker.page.rendering import shown_bytes, visible
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.storage.entry import Codec, Compression, EntryFields, build_entry, read_header
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.v1.data_pb2 import StartPosition
from tests.model.log_model import Message
from tests.support.page_lab import PageLab

SCRIPT = "<script>alert(1)</script>"
BREAKS_OUT = "\"'><img src=x onerror=alert(2)>{{ 7*7 }}"
TURNED = "\u202egnp.exe"
CONTROL = "a\x00b\x1b[31mc\x7f"


def test_names_are_escaped(written: PageLab) -> None:
    local = f"{SCRIPT.replace('/', '')}{BREAKS_OUT}"
    name = f"persistent://public/default/{local}"
    path = f"/topics/persistent/public/default/{quote(local, safe='')}"

    async def make() -> None:
        topic = await written.broker.topic(name)
        for each in (SCRIPT, BREAKS_OUT, TURNED):
            await create_subscription(topic, each, StartPosition(earliest=True))
        # As an earlier version may have stored it; no request names it.
        await written.broker.topic(f"persistent://public/default/{SCRIPT}")

    written.run(make())
    for at in ("/", path, f"{path}/explain", f"{path}/what-if", f"{path}/messages"):
        seen = written.look(at)
        assert "<script>" not in seen.html, at
        assert "<img" not in seen.html, at
        assert "{{ 7*7 }}" in seen.text, at
        assert "\u202e" not in seen.html, at
    assert r"\u202egnp.exe" in written.look(path).text
    # Its links lead to it.
    assert f'href="{path}"' in written.look("/").html


def test_keys_and_values_are_escaped(written: PageLab) -> None:
    keys = (SCRIPT, BREAKS_OUT, TURNED, CONTROL)
    written.publish(*(([Message(each.encode(), each.encode())], False) for each in keys))
    written.publish(([Message(b"\xff\xfe", bytes(range(256)) * 40)], False))
    seen = written.look("/topics/persistent/public/default/t/messages")
    assert SCRIPT not in seen.html
    assert "<img" not in seen.html
    for raw in ("\u202e", "\x00", "\x1b", "\x7f"):
        assert raw not in seen.html
    assert r"a\x00b\x1b[31mc\x7f" in seen.text
    assert "10.0 KiB, binary" in seen.text
    for each in keys:
        asked = written.look(f"/topics/persistent/public/default/t/explain?of={quote(each)}")
        assert "1 version," in asked.text
        assert SCRIPT not in asked.html
        assert "<img" not in asked.html


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("garbage", [b"", b"\xff" * 70, b"\x0a\xff\xff\xff\xff\x0f" * 11])
def test_undecodable_entries_have_a_row(codec: Codec, garbage: bytes) -> None:
    fields = EntryFields(
        message_count=3,
        sequence_id=0,
        publish_time_ms=1,
        codec=codec,
        compression=Compression.NONE,
    )
    data = build_entry(garbage, garbage, fields)
    rows = list(shown_messages(StoredEntry(read_header(data), data), -1))
    assert rows[-1]["why_not"] or garbage == b"", rows


@pytest.mark.parametrize(
    ("data", "text", "is_binary", "is_cut"),
    [
        (b"", "", False, False),
        ("é".encode() * 600, "é" * 512, False, True),
        (b"x" + "é".encode() * 600, "x" + "é" * 511, False, True),
        (b"\x80" * 2000, "80 " * 255 + "80", True, True),
        (b"ok\xff", "6f 6b ff", True, False),
    ],
)
def test_bytes_are_shown_readably(data: bytes, text: str, is_binary: bool, is_cut: bool) -> None:
    assert shown_bytes(data) == (text, is_binary, is_cut, len(data))


def test_lone_surrogates_are_visible() -> None:
    assert visible("a\ud800b") == r"a\ud800b"
    assert visible("line\n\ttab") == "line\n\ttab"


ODD = ("t", "k", "nope", "..", ".", "a/b", "ü\u2028", "x" * 1100, "\x00", SCRIPT, "%", "*")
VIEWS = ("", "/explain", "/what-if", "/messages", "/compact", "/x", "/explain/x")
QUERIES = (
    "",
    "?",
    "?by=id&of=1:2&of=3",
    "?by=none",
    "?by=id&of=99999999999999999999:1",
    "?ask=1",
    "?ask=1&ratio=x",
    "?ask=1&ratio=0.1&lag=1&threshold=1",
    "?from=9999:9999:3:7",
    "?from=9223372036854775807:9223372036854775807&view=compacted",
    "?page=99999999999999999999",
    "?%ff=%fe",
    "?q=" + "x" * 20_000,
    "?" + "&".join(f"a{at}=1" for at in range(60)),
)


def test_every_view_with_unusual_data(written: PageLab) -> None:
    written.publish(([Message(b"k", b"v")], False))
    written.run(written.broker.create_topic("persistent://public/default/k", {}))
    written.run(written.broker.create_topic("non-persistent://public/default/t"))
    paths = [
        f"/topics/{domain}/public/default/{quote(name, safe='')}{view}"
        for domain in ("persistent", "non-persistent", "other")
        for name in ODD
        for view in VIEWS
    ]
    for path in ["/", "/runs", "/clock", "/%ff", "//", "/topics", *paths]:
        status = written.ask(path).status
        assert status in (200, 400, 404, 405, 412), (path, status)
    for name in ("t", "k"):
        for view in VIEWS:
            for query in QUERIES:
                path = f"/topics/persistent/public/default/{name}{view}{query}"
                status = written.ask(path).status
                assert status in (200, 400, 404, 405, 412), (path[:200], status)
    for path in paths:
        status = written.send(path, {"key": SCRIPT, "by": "x"}).status
        assert status in (303, 400, 404, 405, 412), (path, status)
