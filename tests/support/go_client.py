"""A process with Pulsar's Go client, unchanged: a JSON request a line in, an answer a line out.

Its program is tests/pulsar/go. `go` builds it, from modules with the checksums of go.sum; where Go
is not installed, or its modules cannot be had, the tests are skipped, and say why.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import WAIT_S

PROGRAM = Path(__file__).parent.parent / "pulsar" / "go"
# Words of `go mod download` without a network. Anything else, as a wrong checksum, is a failure.
_OFFLINE = ("dial tcp", "no such host", "timeout", "connection refused", "no route", "proxyconnect")

# The first build compiles all of the client: minutes, on a busy machine. Go keeps the result.
_BUILD_S = 900


def built(folder: Path) -> Path:
    """Returns the program, in `folder`. Skips the test if there is no Go, or no network."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("NOT TESTED with Pulsar's Go client: Go is not installed (https://go.dev/dl)")
    loaded = _run(go, "mod", "download")
    if loaded.returncode and any(word in loaded.stderr.lower() for word in _OFFLINE):
        pytest.skip(f"NOT TESTED with Pulsar's Go client: no Go modules: {loaded.stderr[-500:]}")
    assert loaded.returncode == 0, loaded.stderr
    program = folder / "go-client"
    compiled = _run(go, "build", "-o", str(program), ".")
    assert compiled.returncode == 0, compiled.stderr
    return program


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    # Without a C compiler: the client has all its codecs in Go, too.
    return subprocess.run(
        command,
        cwd=PROGRAM,
        env=os.environ | {"CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )


class GoClient:
    """One client. Calls raise AssertionError with the client's error text.

    `files`: the certificate of an authority, and a token.
    """

    def __init__(self, program: Path, url: str, *files: Path) -> None:
        self._process = subprocess.Popen(
            [str(program), url, *map(str, files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, op: str, **fields: Any) -> dict[str, Any]:
        self.ask(op, **fields)
        answer = self.answer()
        assert "error" not in answer, answer["error"]
        return answer

    def ask(self, op: str, **fields: Any) -> None:
        """Sends a request; `answer` returns its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        for message in answer.get("messages", ()):
            message["value"] = base64.b64decode(message["value"])
        return answer

    def refusal(self, op: str, **fields: Any) -> str:
        """Returns the error of a request that the client, or the broker, refuses."""
        self.ask(op, **fields)
        return str(self.answer()["error"])

    def read_all(self, topic: str, **options: Any) -> list[dict[str, Any]]:
        self("reader", name="read-all", topic=topic, **options)
        found: list[dict[str, Any]] = self("read", name="read-all")["messages"]
        self("close", name="read-all")
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._process.stdout.close()

    def __enter__(self) -> GoClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
