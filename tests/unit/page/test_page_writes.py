"""Publish, read, compact and the clock, by hand."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from ledgerfold.broker.page.messages import MESSAGES_SHOWN
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.v1.records_pb2 import SCHEMA_TYPE_STRING, Policies, SchemaDefinition
from tests.model.log_model import Message
from tests.support.memory_compactor import MemoryCompactor
from tests.support.page_lab import PageLab, T
from tests.support.waiting import wait_until


def create(page: PageLab) -> None:
    page.run(page.broker.create_topic("persistent://public/default/t"))


def test_a_published_message_is_shown(written: PageLab) -> None:
    create(written)
    sent = written.send(f"{T}/messages", {"key": "k1", "value": "one\r\ntwo"})
    assert sent.status == 303, sent.text
    seen = written.look(sent.headers["location"])
    (at,) = parse_qs(urlsplit(sent.headers["location"]).query)["published"]
    assert f"Published as {at}." in seen.text
    assert ">one\ntwo</pre>" in seen.html
    (read,) = written.run(_read(written))
    assert (read.key, read.value) == (b"k1", b"one\ntwo")


async def _read(page: PageLab) -> list[Message]:
    topic = await page.broker.topic("persistent://public/default/t")
    found = (await topic.log.reads.read_raw(EARLIEST, 1 << 20)).entries
    messages = [each for entry in found for each in decode(entry.data, entry.header).messages()]
    return [Message(each.key, each.value) for each in messages]


def test_a_message_without_a_key_and_a_tombstone(written: PageLab) -> None:
    create(written)
    assert written.send(f"{T}/messages", {"key": "", "value": "v"}).status == 303
    assert written.send(f"{T}/messages", {"key": "k", "tombstone": "on"}).status == 303
    assert written.send(f"{T}/messages", {"key": "", "tombstone": "on"}).status == 400
    assert written.run(_read(written)) == [Message(None, b"v"), Message(b"k", b"")]
    seen = written.look(f"{T}/messages")
    assert "tombstone" in seen.text


@pytest.mark.parametrize(("key", "value"), [("k", "v" * 70_000), ("k" * 9_000, "v")])
def test_too_long_forms_are_refused(written: PageLab, key: str, value: str) -> None:
    create(written)
    assert written.send(f"{T}/messages", {"key": key, "value": value}).status == 413
    assert written.run(_read(written)) == []


def test_a_topic_with_a_required_schema_refuses_messages_without_one(written: PageLab) -> None:
    create(written)
    name = "persistent://public/default/t"

    async def require() -> None:
        definition = SchemaDefinition(type=SCHEMA_TYPE_STRING)
        await written.broker.schemas.put(name, definition)
        topic = await written.broker.topic(name)
        enforced = Policies(schema_validation_enforced=True)
        await written.broker.policies.update_topic(topic, enforced, [])

    written.run(require())
    seen = written.send(f"{T}/messages", {"key": "k", "value": "v"})
    assert (seen.status, "schema" in seen.text) == (412, True)
    assert written.run(_read(written)) == []


def test_publishing_by_a_form_creates_no_topic(written: PageLab) -> None:
    assert written.send(f"{T}/messages", {"key": "k", "value": "v"}).status == 404
    assert written.send(f"{T}/compact", {}).status == 404
    assert written.broker.names.listed() == []


def test_messages_are_paged_across_batches(written: PageLab) -> None:
    """None is left out, none is shown twice."""
    batch = [Message(b"k%d" % at, b"<%d>" % at) for at in range(2 * MESSAGES_SHOWN)]
    written.publish(
        ([Message(b"first", b"<first>")], False), (batch, True), ([Message(b"z", b"<last>")], False)
    )
    path, found = f"{T}/messages", list[str]()
    for _ in range(4):
        seen = written.look(path)
        found += [part.partition("</pre>")[0] for part in seen.html.split("<pre>")[2::2]]
        more = seen.html.partition('<a rel="next" href="')[2].partition('"')[0]
        if not more:
            break
        path = more.replace("&amp;", "&")
    expected = ["first", *map(str, range(2 * MESSAGES_SHOWN)), "last"]
    assert found == [f"&lt;{each}&gt;" for each in expected]


def test_the_compacted_view_is_read(written: PageLab) -> None:
    written.publish(([Message(b"k", b"before")], False), ([Message(b"k", b"after")], False))
    assert written.send(f"{T}/compact", {}).headers["location"] == T
    wait_until(lambda: "success" in written.look(T).text, "the run's end")
    assert "before" not in written.look(f"{T}/messages?view=compacted").text
    assert "before" in written.look(f"{T}/messages?view=raw").text
    assert written.ask(f"{T}/messages?view=other").status == 400
    assert written.ask(f"{T}/messages?from=x").status == 400
    again = written.send(f"{T}/compact", {}).headers["location"]
    assert "There is nothing new to compact" in written.look(again).text
    assert written.send(f"{T}/cancel", {}).status == 303


def test_a_run_in_progress_is_shown_and_cancelled(written: PageLab) -> None:
    written.publish(([Message(b"k", b"v")], False))
    compactor = written.broker.compactor
    assert isinstance(compactor, MemoryCompactor)
    written.on_loop(compactor.may_go.clear)
    assert written.send(f"{T}/compact", {}).status == 303
    for path in (T, "/", "/runs"):
        seen = written.look(path)
        assert 'class="card busy"' in seen.html, path
        # Its next look is soon.
        assert 'data-refresh="1000"' in seen.html, path
    assert "Cancel the run" in written.look(T).text
    assert written.send(f"{T}/compact", {}).status == 409
    assert written.send(f"{T}/cancel", {}).status == 303
    seen = written.look(T)
    assert "cancelled" in seen.text
    assert "Compact now" in seen.text
    written.on_loop(compactor.may_go.set)


def test_records_are_published_to_a_kafka_topic(kafka: PageLab) -> None:
    sent = kafka.send(f"{T}/messages", {"key": "a", "value": "1"})
    assert sent.headers["location"].endswith("published=0%3A0")
    assert kafka.send(f"{T}/messages", {"key": "", "value": "no key"}).status == 412
    kafka.send(f"{T}/messages", {"key": "b", "value": "2"})
    seen = kafka.look(f"{T}/messages?from=0:1")
    assert ">2</pre>" in seen.html
    assert ">1</pre>" not in seen.html
    assert "The compacted view" not in seen.text


def test_a_test_clock_is_moved(written: PageLab) -> None:
    before = written.lab.clock.now_ms()
    assert "A test clock" in written.look("/clock").text
    assert written.send("/clock", {"by": "2", "unit": "hours"}).status == 303
    assert written.lab.clock.now_ms() - before >= 7_200_000
    for odd in ({"by": "0"}, {"by": "-1"}, {"by": "x"}, {"by": "1", "unit": "eons"}):
        assert written.send("/clock", odd).status == 400
