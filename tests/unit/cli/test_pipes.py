"""The command line among other processes: pipes that close, signals, terminals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest

from ledgerfold.broker.cli.topics.compaction import wait_for_end
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1 import admin_pb2
from tests.support.command_line import command, ledgerfold, run
from tests.support.waiting import WAIT_S, wait_until
from tests.unit.cli.conftest import Ledgerfold

pytestmark = pytest.mark.process

# More than a pipe holds, so that a writer must notice the closed end.
LINES = b"a line of text that is some fifty characters long\n" * 20_000


@pytest.fixture
def filled(cli: Ledgerfold, topic: str) -> str:
    """A topic with a megabyte in it."""
    assert cli("produce", topic, stdin=LINES).code == 0
    return topic


def in_shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """In bash, with `ledgerfold` as a function; its code is that of the first command."""
    return subprocess.run(
        [
            *("bash", "-c"),
            f'ledgerfold() {{ "{sys.executable}" -m ledgerfold "$@"; }}\n'
            f"{line}\nexit ${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    ["read {topic} --until-end", "consume {topic} -s s -p Earliest -n 0", "read {topic}"],
)
def test_a_pipe_closed_early_ends_the_command_silently(
    url: str, filled: str, arguments: str
) -> None:
    """`| head -1` shows a line; the command exits with 0 and prints no error."""
    ran = in_shell(f"ledgerfold --url {url} {arguments.format(topic=filled)} | head -1")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.count(b"\n") == 1


def test_help_in_a_pipe_closed_early() -> None:
    """Includes argparse's output."""
    ran = in_shell("ledgerfold --help | true")
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- <&-"])
def test_commands_with_closed_standard_streams_succeed(url: str, filled: str, closed: str) -> None:
    """The command does its work and exits with 0. Other tests read too little from streams, but
    never closed them."""
    ran = in_shell(f"ledgerfold --url {url} read {filled} --until-end {closed}")
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_an_error_with_closed_streams_sets_the_exit_code() -> None:
    """The exit code shows it."""
    assert in_shell("ledgerfold inspect nowhere 2>&- >&-").returncode == 2


def test_produce_succeeds_if_its_output_is_closed(url: str, topic: str, cli: Ledgerfold) -> None:
    """The messages are stored anyway."""
    ran = in_shell(f"yes x | head -n 3000 | ledgerfold --url {url} produce {topic} -v | head -1")
    assert ran.stderr == b""
    assert ran.stdout.count(b"\n") == 1
    assert len(cli("read", topic, "--until-end").rows) == 3000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_to_a_full_disk(url: str, filled: str) -> None:
    """An error like any other."""
    ran = in_shell(f"ledgerfold --url {url} read {filled} --until-end > /dev/full")
    assert ran.returncode == 1
    assert ran.stderr == b"ledgerfold: [Errno 28] No space left on device\n"


def test_each_line_is_flushed_before_the_next_message(
    url: str, topic: str, cli: Ledgerfold
) -> None:
    """A reader of a pipe sees a message when it arrives, not when a buffer is full."""
    for arguments in (("read", topic), ("consume", topic, "-s", "s", "-p", "Earliest", "-n", "0")):
        with subprocess.Popen(
            command("--url", url, *arguments, "-o", "text"), stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                cli("produce", topic, "-k", "k", "-m", "first")
                assert process.stdout.readline().endswith("first\n")
            finally:
                process.kill()
        cli("topics", "delete", topic, "--force")


@pytest.mark.parametrize(
    "arguments", [("read", "{topic}"), ("consume", "{topic}", "-s", "s"), ("produce", "{topic}")]
)
def test_an_interruption_exits_with_130(
    url: str, topic: str, cli: Ledgerfold, arguments: tuple[str, ...]
) -> None:
    """SIGINT ends a command that waits; it exits with 130 and prints nothing."""
    cli("topics", "create", topic)
    with subprocess.Popen(
        command("--url", url, *(each.format(topic=topic) for each in arguments)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        with Admin(url) as admin:
            wait_until(lambda: is_connected(admin, topic), "the command to be connected")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out, err) == (130, b"", b"")


def is_connected(admin: Admin, topic: str) -> bool:
    stats = admin.stats(topic)
    return bool(
        stats["publishers"] or any(each["consumers"] for each in stats["subscriptions"].values())
    )


def test_an_interrupted_consumer_has_acknowledged_what_it_printed(
    url: str, topic: str, cli: Ledgerfold
) -> None:
    """The last one may be missing; the next consumer continues there."""
    cli("produce", topic, "-m", "1", "-m", "2")
    with subprocess.Popen(
        command("--url", url, "consume", topic, "-s", "s", "-p", "Earliest", "-n", "0"),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
    assert all(lines)
    cli("produce", topic, "-m", "3")
    rows = cli("consume", topic, "-s", "s", "-n", "0", "--until-end").rows
    assert [row["value"] for row in rows] in (["3"], ["2", "3"])


# Progress.


class Terminal:
    """The other end of a pseudo terminal: the output so far."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.seen = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.seen, text)

    def _read(self) -> None:
        while True:
            try:
                block = os.read(self._master, 4096)
            except OSError:  # how Linux says that the other side is closed
                return
            if not block:
                return
            self.seen += block.decode(errors="replace")


@contextmanager
def terminal() -> Iterator[tuple[int, Terminal]]:
    """Returns a pseudo terminal: the end for a process, and the end that a person sees."""
    master, slave = os.openpty()
    try:
        yield slave, Terminal(master)
    finally:
        os.close(slave)
        os.close(master)


class Run:
    """A compaction as an admin sees it, each phase for as long as it takes to be seen."""

    def __init__(self, seen: Terminal | None) -> None:
        self._terminal = seen

    def watch_compaction(
        self, topic: str, timeout_seconds: float | None
    ) -> Iterator[admin_pb2.GetCompactionStatusResponse]:
        for phase, shown in (
            (admin_pb2.COMPACTION_PHASE_ONE, "phase one"),
            (admin_pb2.COMPACTION_PHASE_TWO, "phase two"),
        ):
            progress = admin_pb2.CompactionProgress(
                phase=phase, tasks_done=1, tasks_total=4, messages=1234, bytes=1, bytes_total=4
            )
            if phase == admin_pb2.COMPACTION_PHASE_TWO:
                progress.left_ms = 5_400
            yield admin_pb2.GetCompactionStatusResponse(progress=progress)
            if self._terminal is not None:
                self._terminal.wait_for(shown)
        yield admin_pb2.GetCompactionStatusResponse(status=admin_pb2.COMPACTION_STATUS_SUCCESS)


def test_a_terminal_shows_the_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """And how far each is; standard output stays free of it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with terminal() as (slave, seen), open(slave, "w", closefd=False) as stderr:
        with redirect_stderr(stderr):
            status = wait_for_end(Run(seen), "t")  # type: ignore[arg-type]
        assert status.status == admin_pb2.COMPACTION_STATUS_SUCCESS
        seen.wait_for("1/4 tasks, 1,234 messages")
        seen.wait_for("about 5 s left of this phase")


def test_a_pipe_gets_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress does not belong in a log."""
    wait_for_end(Run(None), "t")  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_table_and_a_pipe_json(url: str, topic: str, cli: Ledgerfold) -> None:
    """As documented for `-o`."""
    cli("produce", topic, "-k", "k", "-m", "value")
    arguments = command("--url", url, "read", topic, "--until-end")
    with terminal() as (slave, seen):
        subprocess.run(arguments, stdout=slave, timeout=WAIT_S, check=True)
        seen.wait_for("value")
        assert "{" not in seen.seen
    assert run(["--url", url, "read", topic, "--until-end"]).stdout.startswith(b"{")


def test_produce_without_messages_on_a_terminal_is_refused(url: str, topic: str) -> None:
    """A user who forgot the message gets an error, instead of a command that waits."""
    with terminal() as (slave, _):
        ran = subprocess.run(
            command("--url", url, "produce", topic),
            stdin=slave,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
    assert ran.returncode == 2
    assert b"Nothing to publish" in ran.stderr


def test_commands_give_the_same_result_in_this_process() -> None:
    """Verifies the basis of the other tests."""
    ran = run(["--version"])
    assert ledgerfold("--version") == (0, ran.stdout.decode(), ran.stderr.decode())
