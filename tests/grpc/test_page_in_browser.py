"""The page of a real broker, in a real browser: Chromium, without a window.

Skipped where there is no browser. The environment variable LEDGERFOLD_PICTURES names a folder for
pictures of the pages; those of docs/UI.md were made so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from ledgerfold.broker.client import Client, InitialPosition
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1.records_pb2 import Policies
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.chromium import Chromium, needs_chromium
from tests.support.waiting import RUN_S, WAIT_MS, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WIDE, NARROW = 1280, 390
TAB, ENTER = "\ue004", "\ue007"
KEYS = 97
HOSTILE = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
ADDRESSES = "/topics/persistent/public/default/addresses"
INVENTORY = "/topics/persistent/public/default/inventory"
_OVERFLOW = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests, in whose order its topics grow: the pictures are made first."""
    needs_chromium()
    data_dir = tmp_path_factory.mktemp("pages") / "data"
    small = ("--segment-size", "60K", "--ledger-entries", "40", "--retention-time", "-1")
    page = ("--ui", "127.0.0.1:0", "--ui-writes", "--test-clock", "2026-03-02T08:00:00Z")
    arguments = (*small, "--retention-size", "-1", *page, "--compactor", "inline")
    with BrokerProcess(data_dir, arguments=arguments) as broker:
        with Client(broker.url) as client, Admin(broker.url) as admin:
            fill(client, admin)
        yield broker


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    needs_chromium()
    browser = Chromium()
    yield browser
    browser.close()


def publish(client: Client, topic: str, first: int, count: int, filler: int = 150) -> None:
    with client.create_producer(
        topic, batching_enabled=True, batching_max_messages=30, block_if_queue_full=True
    ) as producer:
        for number in range(first, first + count):
            key = f"customer-{number * number % KEYS}"
            value = f'{{"customer":"{key}","n":{number},"street":"{number:0{filler}}"}}'
            producer.send_async(value.encode(), None, partition_key=key)
        producer.flush()


def fill(client: Client, admin: Admin) -> None:
    """Three days of addresses, of which two are compacted; a Kafka log; a hostile topic."""
    admin.create_topic("inventory", kafka={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    for day in range(3):
        for hour in range(6):
            publish(client, "addresses", 1000 * day + 150 * hour, 150)
            admin.move_clock(advance_ms=3_600_000)
        publish(client, "inventory", 800 * day, 800, filler=1500)
        if day < 2:
            admin.trigger_compaction("addresses")
            for _ in admin.watch_compaction("addresses", timeout_seconds=RUN_S):
                pass
        admin.move_clock(advance_ms=18 * 3_600_000)
    admin.update_policies(topic="addresses", values=Policies(compaction_threshold_bytes=400_000))
    earliest = InitialPosition.Earliest
    with client.subscribe("addresses", "billing", initial_position=earliest) as consumer:
        for _ in range(600):
            message = consumer.receive(timeout_millis=WAIT_MS)
        consumer.acknowledge_cumulative(message)
    # Not cleaned any more: the clock stands still.
    publish(client, "inventory", 2400, 1500, filler=1500)
    with client.create_producer("hostile") as producer:
        producer.send(HOSTILE.encode() + b"\x00\x1b", partition_key=HOSTILE)
        producer.send(bytes(range(256)), partition_key="binary")
    client.subscribe("hostile", HOSTILE).close()


def url(broker: BrokerProcess, path: str = "/") -> str:
    return f"http://{broker.ready['ui']}{path}"


def keep(browser: Chromium, name: str) -> None:
    """Writes a picture if pictures are wanted."""
    if folder := os.environ.get("LEDGERFOLD_PICTURES"):
        browser.picture(Path(folder) / f"{name}.png", height_max=1500)


def test_every_page_at_two_widths_in_both_color_schemes(
    broker: BrokerProcess, browser: Chromium
) -> None:
    pages = {
        "topics": "/",
        "topic": ADDRESSES,
        "kafka": INVENTORY,
        "explain": f"{ADDRESSES}/explain?of=customer-4",
        "what-if": f"{ADDRESSES}/what-if?ask=1&strategy=publishing-order&strategy=keep-n"
        "&keep-n.n=3&threshold=100,300&size_unit=KiB&every=12&time_unit=hours",
        "messages": "/topics/persistent/public/default/hostile/messages",
        "runs": "/runs",
        "clock": "/clock",
    }
    colours = set[str]()
    for width, is_dark in ((WIDE, False), (NARROW, True)):
        browser.look(width=width, is_dark=is_dark)
        for name, path in pages.items():
            browser.open(url(broker, path))
            keep(browser, f"{name}-{width}-{'dark' if is_dark else 'light'}")
            assert browser.errors() == [], name
            assert browser.run(_OVERFLOW) == 0, f"{name} is wider than {width}"
            assert browser.run("return document.title").endswith("· Ledgerfold"), name
            assert browser.run(_SMALL_CONTRAST) == [], (name, is_dark)
        colours.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_a_run_appears_without_a_reload(
    broker: BrokerProcess, browser: Chromium, client: Client
) -> None:
    """With the keyboard alone."""
    browser.look(width=WIDE)
    browser.open(url(broker, ADDRESSES))
    browser.run("window.wasHere = true")
    browser.press(TAB)
    assert browser.run("return document.activeElement.className") == "skip"
    names = list[str]()
    while "Compact now" not in names:
        browser.press(TAB)
        names.append(str(browser.run("return document.activeElement.innerText")))
        outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", names[-1]
        assert len(names) < 30, names
    assert names[:4] == ["Ledgerfold", "Topics", "Compactions", "Clock"]
    browser.press(ENTER)
    is_new = "return window.wasHere === undefined && document.readyState === 'complete'"
    wait_until(lambda: browser.run(is_new), "the page after the form")
    browser.run("window.wasHere = true")
    with Admin(broker.url) as admin:
        for _ in admin.watch_compaction("addresses", timeout_seconds=RUN_S):
            pass
        horizon = admin.runs("addresses")[0].horizon
    shown = f"{horizon.ledger_id}:{horizon.entry_id}"
    wait_until(lambda: shown in browser.text(".figures"), "the new horizon")
    publish(client, "addresses", 5000, 30)
    wait_until(lambda: "ahead" in browser.run(_KINDS), "the new entries in the strip")
    assert browser.run("return window.wasHere") is True
    assert browser.errors() == []


def test_contents_of_a_topic_are_never_executed(broker: BrokerProcess, browser: Chromium) -> None:
    browser.look(width=WIDE)
    for path in (
        "/topics/persistent/public/default/hostile",
        "/topics/persistent/public/default/hostile/messages",
        f"/?q={HOSTILE[:8]}%3E",
    ):
        browser.open(url(broker, path))
        assert "stolen" not in browser.run("return document.title")
        assert not browser.has("main script, main img")
        assert browser.errors() == []
    # Nor would it if it were in the page as it is.
    browser.run(
        "const s = document.createElement('script'); s.textContent = arguments[0];"
        "document.body.append(s)",
        "document.title = 'stolen'",
    )
    assert "stolen" not in browser.run("return document.title")
    assert "Content Security Policy" in str(browser.errors())


def test_long_and_foreign_names_fit_into_a_narrow_window(
    broker: BrokerProcess, browser: Chromium, client: Client
) -> None:
    """No test had looked at names that are wider than the window."""
    browser.look(width=NARROW, is_dark=True)
    paths = ["/"]
    for name in ("x" * 1000, "الطلبات", "\N{GRINNING FACE}-orders", "W" * 60 + " i" * 30):
        with client.create_producer(name) as producer:
            producer.send(name.encode(), partition_key=name)
        topic = f"/topics/persistent/public/default/{quote(name)}"
        paths += [topic, f"{topic}/explain?of={quote(name)}", f"{topic}/messages"]
    for path in paths:
        browser.open(url(broker, path))
        assert browser.run(_OVERFLOW) == 0, path
        assert browser.errors() == [], path


def test_the_publish_form_and_the_clock_form(broker: BrokerProcess, browser: Chromium) -> None:
    browser.look(width=NARROW)
    browser.open(url(broker, "/topics/persistent/public/default/hostile/messages"))
    browser.click("summary")
    browser.type("#key", "by-hand")
    browser.type("#value", "first line")
    browser.click("details button")
    wait_until(lambda: "Published as" in browser.text(), "the published message")
    assert "by-hand" in browser.text("table")
    browser.open(url(broker, "/clock"))
    before = browser.text(".clock")
    browser.type("#by", "26")
    browser.click("main button")
    wait_until(lambda: browser.text(".clock") != before, "the moved clock")
    assert browser.errors() == []


def test_a_page_of_a_broker_that_has_gone_says_so(
    broker_process: MakeBroker, browser: Chromium
) -> None:
    """Only the picture of a page with a broker had been looked at. This is the last test: the page
    keeps asking, and the console keeps the failures.
    """
    leaving = broker_process("--ui", "127.0.0.1:0")
    with Client(leaving.url) as client:
        client.create_producer("addresses")
    browser.look(width=WIDE)
    browser.open(url(leaving, ADDRESSES))
    assert browser.run(_NOTICE) == "none"
    leaving.kill()
    wait_until(lambda: "does not answer" in browser.run(_NOTICE), "the notice")


_NOTICE = "return getComputedStyle(document.querySelector('.meta'), '::before').content"
_KINDS = (
    "return [...document.querySelectorAll('rect.block')].map(each => each.className.baseVal).join()"
)
# Texts whose contrast with what is behind them is below that of WCAG AA, 4.5 to 1.
_SMALL_CONTRAST = """
const channels = text => text.match(/[0-9.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
  .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
const behind = of => {
  for (; of; of = of.parentElement) {
    const found = channels(getComputedStyle(of).backgroundColor);
    if (found.length === 3 || found[3] === 1) return found;
  }
  return [255, 255, 255];
};
const found = [];
for (const each of document.querySelectorAll("main *, header *, footer *")) {
  const isText = [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  if (!isText || !each.offsetParent || each.closest("svg, .hidden, option")) continue;
  const [a, b] = [light(channels(getComputedStyle(each).color)), light(behind(each))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.push(`${each.tagName}.${each.className} ${ratio.toFixed(2)}`);
}
return [...new Set(found)];
"""
