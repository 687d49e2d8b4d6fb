"""Each view, of a broker with data."""

from __future__ import annotations

import re

from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.page import overview
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.storage.errors import MissingFile
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import (
    Replay,
    ReplaySetting,
    SpacePoint,
    StrategyForecast,
    TopicWhatIf,
    WhatIfInput,
)
from tests.model.broker_lab import TOPIC
from tests.model.log_model import Message
from tests.support.kafka_lab import KafkaLab
from tests.support.page_lab import PageLab, T


def filled(page: PageLab) -> None:
    """Two versions of a key compacted, one after the horizon."""
    page.publish(([Message(b"apple", b"1" * 50)], False), ([Message(b"apple", b"2" * 50)], False))
    page.run(page.lab.compaction())
    page.publish(([Message(b"apple", b"3" * 50)], False))


def test_an_empty_broker(page: PageLab) -> None:
    seen = page.look("/")
    assert "There are no topics yet." in seen.text
    assert "read-only" in seen.text
    assert "Nothing was compacted yet." in page.look("/runs").text


def test_the_list_of_topics(page: PageLab) -> None:
    filled(page)
    seen = page.look("/")
    assert f'href="{T}"' in seen.html
    horizon = page.on_loop(lambda: page.broker.topics[TOPIC].log.views.horizon)
    assert str(horizon) in seen.text
    assert "compacted" in seen.text
    assert 'class="bar"' in seen.html


def test_topics_that_are_not_loaded_are_shown_and_not_loaded(page: PageLab) -> None:
    filled(page)
    before = page.look("/").text

    async def unload() -> None:
        async with page.broker.kept_unloaded(TOPIC):
            pass

    page.run(unload())
    after = page.look("/").text
    assert "not loaded" in after
    assert page.broker.topics == {}
    # The sizes are the same.
    stored = re.search(r"([0-9.]+ \w+) · ([0-9.]+ \w+) compacted", before)
    assert stored is not None
    assert stored[0] in after


def test_a_long_list_is_paged(page: PageLab) -> None:
    for at in range(overview.TOPICS_SHOWN + 3):
        page.run(page.broker.create_topic(f"persistent://public/default/many-{at:03}"))
    first = page.look("/")
    assert first.html.count("many-") // 2 >= overview.TOPICS_SHOWN
    assert "many-052" not in first.html
    assert "Page 1 of 2" in first.text
    assert "many-052" in page.look("/?page=2").text
    assert "many-007" in page.look("/?q=MANY-007").text
    assert "many-008" not in page.look("/?q=many-007").text
    assert "Page 2 of 2" in page.look("/?page=3").text
    assert page.ask("/?page=x").status == 400
    assert "No topic has “&lt;" in page.look("/?q=%3Cb%3E").html


def test_a_topic(page: PageLab) -> None:
    filled(page)

    async def subscribe() -> None:
        topic = await page.broker.topic(TOPIC)
        await create_subscription(topic, "billing", StartPosition(earliest=True))

    page.run(subscribe())
    seen = page.look(T)
    for words in ("Compacted view", "Raw log", "horizon", "billing", "__compaction", "success"):
        assert words in seen.text, words
    assert "entries, kept by: open</title>" in seen.html
    # Both rows meet at the horizon.
    assert seen.html.count('class="block passed"') == 1
    assert seen.html.count('class="block compacted"') == 1
    assert 'class="block ahead"' in seen.html or 'class="block open"' in seen.html
    assert page.ask("/topics/persistent/public/default/nope").status == 404
    assert page.ask("/topics/elsewhere/public/default/t").status == 404


def test_the_last_check_of_the_threshold(page: PageLab) -> None:
    filled(page)

    async def check() -> None:
        topic = await page.broker.topic(TOPIC)
        topic.record.policies.compaction_threshold_bytes = 1 << 20
        await page.broker.compaction.monitor.check(topic)

    page.run(check())
    assert re.search("threshold 1.0 MiB of the topic; check of .*: not above", page.look(T).text)


def test_a_damaged_view_is_reported(page: PageLab) -> None:
    filled(page)

    def damage() -> None:
        view = page.broker.topics[TOPIC].log.views.current
        view.damaged(MissingFile("7/00000000000000000000.log", "its record"))

    page.on_loop(damage)
    assert "7/00000000000000000000.log" in page.look(T).text
    assert "7/00000000000000000000.log" in page.look("/").text


def test_explain_shows_the_history_of_a_key(page: PageLab) -> None:
    filled(page)
    seen = page.look(f"{T}/explain?by=text&of=apple")
    assert "3 versions, newest first" in seen.text
    assert "Next: the next run keeps it" in seen.text
    assert "dropped by run 1" in seen.text
    assert "No ledger has a message of this key." in page.look(f"{T}/explain?of=pear").text
    ids = re.findall(r"by=id&amp;of=([^\"]+)", seen.html)
    assert "1 version," in page.look(f"{T}/explain?by=id&of={ids[0]}").text
    assert "3 versions" in page.look(f"{T}/explain?by=base64&of=YXBwbGU%3D").text
    for odd in ("by=id&of=x", "by=base64&of=%21", "by=other&of=x", f"of={'k' * 9000}"):
        assert page.ask(f"{T}/explain?{odd}").status == 400, odd
    assert page.ask("/topics/persistent/public/default/nope/explain").status == 404


def test_what_if_plots_strategies_and_schedules(page: PageLab) -> None:
    """The compactor in memory only notes what it was asked: it is given an answer."""
    filled(page)
    assert "Strategies" in page.look(f"{T}/what-if").text
    keep_2 = CompactionStrategy(name="keep-n", settings={"n": "2"})
    points = [SpacePoint(publish_time_ms=at, bytes=100 + at) for at in range(3)]
    settings = [ReplaySetting(threshold_bytes=1024), ReplaySetting(interval_ms=60_000)]

    async def analyze(request: AnalyzeRequest) -> TopicWhatIf:
        assert list(request.strategies)[1] == keep_2
        assert list(request.replays) == settings
        return TopicWhatIf(
            input=WhatIfInput(messages=3, bytes=3000),
            forecasts=[StrategyForecast(strategy=keep_2, messages=2, bytes=2000)],
            replays=[Replay(setting=each, runs=1, points=points) for each in settings],
        )

    page.on_loop(lambda: setattr(page.broker.compactor, "analyze", analyze))
    asked = "ask=1&strategy=publishing-order&strategy=keep-n&keep-n.n=2&threshold=1&every=1"
    seen = page.look(f"{T}/what-if?{asked}")
    assert "What a run would leave" in seen.text
    assert "keep-n:n=2" in seen.text
    assert "threshold 1.0 KiB" in seen.text
    assert "every 1 min" in seen.text
    assert seen.html.count("<polyline") == 2
    for odd in (
        "strategy=none-such",
        "threshold=x",
        "threshold=0",
        "threshold=" + ",".join("1" * 9),
        "time_unit=fortnights&every=1",
    ):
        assert page.ask(f"{T}/what-if?ask=1&{odd}").status == 400, odd
    assert page.ask(f"{T}/what-if?ask=1&strategy=keep-n").status == 412


def test_a_kafka_log(kafka: PageLab) -> None:
    async def fill() -> None:
        assert isinstance(kafka.lab, KafkaLab)
        topic = await kafka.broker.kafka_topic(TOPIC, to_write=True)
        for at in range(4):
            pairs = [(b"a", b"%d" % at), (b"b", b"%d" % at)]
            await topic.append_batches(kafka.lab.batch(pairs), Origin.CLIENT)
            await topic.roll()

    kafka.run(fill())
    seen = kafka.look(T)
    for words in ("Checkpoint", "Dirty ratio", "head", "active", "high watermark 8"):
        assert words in seen.text, words
    assert 'class="block ahead"' in seen.html
    assert kafka.send(f"{T}/clean", {}).status == 303
    seen = kafka.look(T)
    assert 'class="block compacted"' in seen.html
    assert "8 -> 2 messages" in seen.text
    assert "dirty 0 %" in kafka.look("/").text
    assert "1 version," in kafka.look(f"{T}/explain?of=a").text
    assert kafka.look(f"{T}/what-if").status == 200


def test_a_non_persistent_topic(page: PageLab) -> None:
    page.run(page.broker.create_topic("non-persistent://public/default/n"))
    assert "nothing is stored" in page.look("/").text
    assert "non-persistent topic" in page.look("/topics/non-persistent/public/default/n").text


def test_runs_are_listed(page: PageLab) -> None:
    filled(page)
    seen = page.look("/runs")
    assert "success" in seen.text
    assert "publishing-order" in seen.text
