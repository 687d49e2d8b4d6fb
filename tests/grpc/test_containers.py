"""Containers of both images, run by podman as a user would: reached from outside, read-only, with
a volume that outlives them.

No test had run the image with a container engine, or the one with Spark at all. They run only if
LEDGERFOLD_IMAGE_BASE names the image to build on (tests/support/images.py).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pulsar
import pytest

from ledgerfold.admin import Admin
from ledgerfold.broker.client import Client, MessageId
from tests.pulsar.conftest import connected
from tests.support.images import MARKS, built_image, output_of
from tests.support.waiting import WAIT_MS, wait_until
from tests.tidy import ROOT

_SPARK_S = 180.0
_MESSAGES = 50_000
podman = partial(output_of, "podman")
pytestmark = MARKS


class Container:
    """A container that runs, and becomes healthy."""

    def __init__(self, name: str) -> None:
        self.id = name
        wait_until(self._is_healthy, "a healthy container")

    @classmethod
    def run(cls, image: str, volume: str) -> Self:
        """Starts one with a read-only root file system, not even a /tmp, and ports of the host."""
        ports = [f"--publish=127.0.0.1::{port}" for port in (6650, 7650, 8080)]
        read_only = ("--read-only", "--read-only-tmpfs=false")
        setting = "--env=PULSAR_PREFIX_maxMessageSize=1048576"
        mounted = f"--volume={volume}:/data"
        return cls(podman("run", "--detach", *read_only, *ports, setting, mounted, image))

    def _is_healthy(self) -> bool:
        return self.checked_health() == "healthy"

    def checked_health(self) -> str:
        """Checks the health once, and returns what the container engine concludes."""
        subprocess.run(["podman", "healthcheck", "run", self.id], check=False, capture_output=True)
        return podman("inspect", "--format={{.State.Health.Status}}", self.id)

    def signal_broker(self, name: str) -> None:
        """Sends a signal to the broker alone, the only child of the container's first process."""
        send = f"kill -{name} $(cat /proc/1/task/1/children)"
        podman("exec", self.id, "sh", "-c", send)

    def address(self, port: int) -> str:
        return podman("port", self.id, str(port))

    def compacted(self, topic: str) -> list[tuple[str | None, bytes]]:
        """Returns the keys and values of the compacted view."""
        with Client(self.address(7650)) as client:
            reader = client.create_reader(topic, MessageId.earliest, is_read_compacted=True)
            found = list[tuple[str | None, bytes]]()
            while reader.has_message_available():
                message = reader.read_next(WAIT_MS)
                found.append((message.partition_key(), message.data()))
        return found

    def stop(self) -> int:
        """Stops it by SIGTERM, and removes it. Returns its exit code."""
        podman("stop", "--time=60", self.id)
        code = int(podman("inspect", "--format={{.State.ExitCode}}", self.id))
        podman("rm", self.id)
        return code


@pytest.fixture(scope="module", params=["no", "yes"], ids=["inline", "spark"])
def image(request: pytest.FixtureRequest) -> tuple[str, str]:
    """An image, and the engine that compacts in it."""
    spark = str(request.param)
    return built_image("podman", spark), {"no": "inline", "yes": "spark"}[spark]


@pytest.fixture
def volume() -> Iterator[str]:
    name = f"ledgerfold-test-{uuid.uuid4().hex[:8]}"
    podman("volume", "create", name)
    yield name
    podman("volume", "rm", "--force", name)


def test_a_container_is_reached_from_outside_and_its_data_survive_it(
    image: tuple[str, str], volume: str
) -> None:
    tag, engine = image
    container = Container.run(tag, volume)
    assert podman("exec", container.id, "id", "-u") == "10000"
    assert json.loads(podman("inspect", container.id))[0]["HostConfig"]["ReadonlyRootfs"]
    with Client(container.address(7650)) as client:
        client.create_producer("t").send(b"1", partition_key="a")
    publish_by_pulsar(connected(container.address(6650)))
    with Admin(container.address(7650)) as admin:
        admin.trigger_compaction("t")
        list(admin.watch_compaction("t", timeout_seconds=_SPARK_S))
        (run,) = admin.runs("t")
        assert (run.error_message, run.engine) == ("", engine)
    kept = [("a", b"2")]
    assert container.compacted("t") == kept
    assert container.stop() == 0
    again = Container.run(tag, volume)
    assert again.compacted("t") == kept
    assert again.stop() == 0


def test_a_broker_that_does_not_answer_makes_its_container_unhealthy(
    image: tuple[str, str], volume: str
) -> None:
    """Only healthy containers had been checked."""
    container = Container.run(image[0], volume)
    container.signal_broker("STOP")
    wait_until(lambda: container.checked_health() == "unhealthy", "an unhealthy container")
    container.signal_broker("CONT")
    wait_until(lambda: container.checked_health() == "healthy", "a healthy container")
    assert container.stop() == 0


def test_a_container_stops_during_a_compaction(image: tuple[str, str], volume: str) -> None:
    """An engine kills a container that does not stop in time: the exit code would be 137."""
    container = Container.run(image[0], volume)
    with Client(container.address(7650)) as client:
        producer = client.create_producer("t", block_if_queue_full=True)
        for number in range(_MESSAGES):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number % 10}")
        producer.close()
    with Admin(container.address(7650)) as admin:
        admin.trigger_compaction("t")
    assert container.stop() == 0
    again = Container.run(image[0], volume)
    with Admin(again.address(7650)) as admin:
        admin.trigger_compaction("t")
        list(admin.watch_compaction("t", timeout_seconds=_SPARK_S))
    assert len(again.compacted("t")) == 10
    assert again.stop() == 0


def test_compose_starts_a_broker(image: tuple[str, str], tmp_path: Path) -> None:
    """As `docker compose up`, at free ports, and without the services whose images are others'."""
    if shutil.which("podman-compose") is None:
        pytest.skip("no podman-compose: apt-get install podman-compose")
    text, (tag, _) = (ROOT / "compose.yaml").read_text(), image
    file = tmp_path / "compose.yaml"
    text = re.sub(r'"127\.0\.0\.1:\d+:(\d+)"', r'"127.0.0.1::\1"', text)
    file.write_text(text.replace("image: ledgerfold\n", f"image: {tag}\n"))
    project = f"test-{uuid.uuid4().hex[:8]}"
    compose = ["podman-compose", "--file", str(file), "--project-name", project]
    try:
        subprocess.run([*compose, "up", "--detach", "--no-build", "ledgerfold"], check=True)
        container = Container(f"{project}_ledgerfold_1")
        publish_by_pulsar(connected(container.address(6650)))
        with Admin(container.address(7650)) as admin:
            assert admin.list_topics() == ["persistent://public/default/t"]
    finally:
        subprocess.run([*compose, "down", "--volumes"], check=True)


def publish_by_pulsar(client: pulsar.Client) -> None:
    """Publishes by Pulsar's client, which looks up the broker behind the published port."""
    client.create_producer("t").send(b"2", partition_key="a")
    client.close()
