"""The image of the Dockerfile, built and run by buildah, as root, without a container engine.

It runs only if LEDGERFOLD_IMAGE_BASE names the image to build on (tests/support/images.py).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.images import MARKS, built_image, output_of
from tests.support.ports import free_port
from tests.support.waiting import WAIT_S, wait_until

buildah = partial(output_of, "buildah")
pytestmark = MARKS


class Container:
    """A container of the image whose command runs. It shares the machine's network."""

    def __init__(self, image: str, command: list[str], log: Path) -> None:
        self.port = free_port()
        self.name = buildah("from", image)
        free_ports = "--pulsar-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --ui 127.0.0.1:0"
        settings = {
            "LEDGERFOLD_PORT": str(self.port),
            "LEDGERFOLD_URL": f"127.0.0.1:{self.port}",
            "LEDGERFOLD_OPTIONS": free_ports,
        }
        for name, value in settings.items():
            buildah("config", "--env", f"{name}={value}", self.name)
        # It becomes the command, whose number is that of the shell.
        start = ["sh", "-c", 'echo $$ > /pulsar/conf/pid && exec "$@"', "sh", *command]
        with log.open("wb") as out:
            self._running = subprocess.Popen(
                ["buildah", "run", "--isolation", "chroot", self.name, "--", *start],
                stdout=out,
                stderr=out,
            )

    def run(self, *command: str) -> str:
        return buildah("run", "--isolation", "chroot", self.name, "--", *command)

    def is_healthy(self, check: list[str]) -> bool:
        assert self._running.poll() is None, "the container has ended"
        try:
            self.run(*check)
        except subprocess.CalledProcessError:
            return False
        return True

    def stop(self) -> int:
        """Ends the command as an engine does, by SIGTERM to its first process."""
        self.run("sh", "-c", "kill -TERM $(cat /pulsar/conf/pid)")
        return self._running.wait(WAIT_S)

    def close(self) -> None:
        if self._running.poll() is None:
            self.stop()
        buildah("rm", self.name)


@pytest.fixture(scope="module")
def image() -> str:
    return built_image("buildah")


@pytest.fixture
def started(image: str, tmp_path: Path) -> Iterator[tuple[Container, list[str]]]:
    """A container, and its health check."""
    described = json.loads(buildah("inspect", "--type", "image", image))["Docker"]["config"]
    assert described["User"] == "10000"
    assert list(described["Volumes"]) == ["/data"]
    kind, *check = described["Healthcheck"]["Test"]
    assert kind == "CMD"
    command = [*described["Entrypoint"], *described["Cmd"]]
    container = Container(image, command, tmp_path / "log")
    yield container, check
    container.close()
    print((tmp_path / "log").read_text())


def test_a_container_serves_without_root_and_stops_on_a_signal(
    started: tuple[Container, list[str]],
) -> None:
    container, check = started
    wait_until(lambda: container.is_healthy(check), "a healthy container", timeout_s=120)
    assert container.run("id", "-u") == "10000"
    assert container.run("stat", "-c", "%u %a", "/data") == "10000 700"
    for value in ("1", "2"):
        container.run("ledgerfold", "produce", "t", "-k", "a", "-m", value)
    container.run("ledgerfold", "topics", "compact", "t", "--wait")
    shown = ["read", "t", "--read-compacted", "--until-end", "-o", "jsonl"]
    (line,) = container.run("ledgerfold", *shown).splitlines()
    assert (json.loads(line)["key"], json.loads(line)["value"]) == ("a", "2")
    (run,) = container.run("ledgerfold", "runs", "t", "-o", "jsonl").splitlines()
    assert json.loads(run)["engine"] == "inline"
    assert container.stop() == 0
    # Nothing of it is left: the data directory is free.
    assert "0 torn tails" in container.run("sh", "-c", _START_ONCE)


# A start that ends by itself shows what the end before has left.
_START_ONCE = (
    "timeout 20 ledgerfold serve --data /data --listen 127.0.0.1:0 --compactor off 2>&1 || true"
)
