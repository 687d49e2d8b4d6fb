"""A real Prometheus scrapes a broker, and answers each expression of the dashboard with data.

The tests had only compared names of metrics; no server had read them. Skipped without Debian's
package `prometheus`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgerfold.admin import Admin
from ledgerfold.broker.client import Client, InitialPosition
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.waiting import RUN_S, WAIT_MS, WAIT_S, wait_until
from tests.tidy import ROOT

MONITORING = ROOT / "scripts/monitoring"
pytestmark = [pytest.mark.process, pytest.mark.slow]
_VALUES = {"$namespace": ".*", "$topic": ".*", "$__rate_interval": "1m"}


def expressions() -> list[str]:
    """Returns what the dashboard asks, with values for its variables."""
    board = json.loads((MONITORING / "ledgerfold.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    for variable, value in _VALUES.items():
        asked = [each.replace(variable, value) for each in asked]
    return asked


class Prometheus:
    def __init__(self, folder: Path, target: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        config = folder / "prometheus.yml"
        text = (MONITORING / "prometheus.yml").read_text()
        text = text.replace("ledgerfold:8080", target)
        config.write_text(text.replace("scrape_interval: 10s", "scrape_interval: 1s"))
        options = {
            "config.file": config,
            "storage.tsdb.path": folder / "tsdb",
            "web.listen-address": self.address,
        }
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["prometheus", *(f"--{name}={value}" for name, value in options.items())],
                stdout=log,
                stderr=log,
            )

    def ask(self, expression: str) -> list[Any]:
        """Returns the series that an expression selects; none while the server starts."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{query}") as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
        except OSError:
            return []
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)


@pytest.fixture
def prometheus(broker_process: MakeBroker, tmp_path: Path) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus: apt-get install prometheus")
    broker = broker_process("--admin-listen", "127.0.0.1:0", compactor="inline")
    fill(broker)
    prometheus = Prometheus(tmp_path, str(broker.ready["admin"]))
    yield prometheus
    prometheus.close()


def fill(broker: BrokerProcess) -> None:
    """Makes a topic that was compacted, one of Kafka's, and a subscription that has received."""
    with Admin(broker.url) as admin, Client(broker.url) as client:
        admin.create_topic("log", kafka={"cleanup.policy": "compact"})
        producer = client.create_producer("t")
        consumer = client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        for value in (b"1", b"2"):
            producer.send(value, partition_key="k")
        consumer.acknowledge(consumer.receive(WAIT_MS))
        admin.trigger_compaction("t")
        list(admin.watch_compaction("t", timeout_seconds=RUN_S))


def test_the_configuration_is_valid() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool: apt-get install prometheus")
    command = ["promtool", "check", "config", str(MONITORING / "prometheus.yml")]
    assert "SUCCESS" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_dashboard_has_data(prometheus: Prometheus) -> None:
    missing = set(expressions())
    assert len(missing) > 20

    def is_complete() -> bool:
        missing.difference_update([each for each in missing if prometheus.ask(each)])
        return not missing

    try:
        wait_until(is_complete, "data of all expressions", RUN_S)
    except AssertionError:
        pytest.fail(f"no data: {sorted(missing)}")
