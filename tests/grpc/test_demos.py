"""Compaction from the command line, and the demonstrations, with a real compactor."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.demo.own_broker import answers, own_broker
from ledgerfold.v1.admin_pb2 import COMPACTION_PHASE_ONE, COMPACTION_PHASE_TWO
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Cli, Ran, checked, command, ledgerfold
from tests.support.compactor_process import CompactorProcess
from tests.support.git_repository import Repository
from tests.support.security_lab import Authority, Tokens, tls_options
from tests.support.waiting import WAIT_S, wait_until

PHASES = (COMPACTION_PHASE_ONE, COMPACTION_PHASE_TWO)


@pytest.mark.parametrize(("name", "left"), [("addresses", 3), ("prices", 3)])
def test_the_worked_examples(cli: Cli, topic: str, name: str, left: int) -> None:
    """The last message of each key remains, in order, under its original id."""
    ran = cli("demo", name, "--topic", topic)
    assert checked(ran) == "of each key the last message, in order, under its own id"
    assert len(cli("read", topic, "--read-compacted", "--until-end").rows) == left


def test_a_demonstration_deletes_its_topic_unless_told_to_keep_it(cli: Cli) -> None:
    """Its name is printed. It is deleted at the end, unless --keep is given."""

    def topic_of(ran: Ran) -> str:
        (line,) = (line for line in ran.out.splitlines() if line.startswith("topic "))
        return line.split()[1]

    gone, kept = cli("demo", "prices"), cli("demo", "prices", "--keep")
    assert (gone.code, kept.code) == (0, 0)
    assert cli("read", topic_of(gone), "--until-end").code == 3
    assert len(cli("read", topic_of(kept), "--until-end").rows) == 7


def test_a_temporary_broker_rejects_keep() -> None:
    """A temporary broker is deleted with the demonstration."""
    ran = ledgerfold("--url", "127.0.0.1:0", "demo", "prices", "--keep")
    assert ran.code == 2
    assert "omit --keep" in ran.err


def test_a_named_broker_that_does_not_answer_is_an_error() -> None:
    """The demonstration took a temporary broker, and succeeded."""
    ran = ledgerfold("--url", "127.0.0.1:1", "demo", "prices")
    assert ran.code == 1, ran.out
    assert "does not answer" in ran.err


def test_a_demonstration_on_a_secured_broker(tmp_path: Path) -> None:
    """It used a temporary broker instead: it passed no credentials, as no test noticed."""
    authority, tokens = Authority(tmp_path), Tokens(tmp_path)
    secured = (*tokens.options, *tls_options(authority.sign("broker")))
    arguments = ("--compactor", "inline", *secured)
    with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
        url = f"ledgerfold+ssl://{broker.url}"
        demo = ("demo", "prices", "--url", url, "--tls-trust-certs", str(authority.file))
        ran = ledgerfold(*demo, "--token", tokens.of("admin"))
        refused = ledgerfold(*demo)
    assert checked(ran) == "of each key the last message, in order, under its own id"
    assert not ran.out.startswith("broker ")
    assert refused.code == 1, refused.err
    assert "token" in refused.err


def test_a_failed_demonstration_leaves_no_topic(cli: Cli, tmp_path: Path) -> None:
    """Also if nothing was published yet."""
    assert cli("demo", "git", str(tmp_path)).code == 2
    assert "demo-git" not in cli("topics", "list").out


def test_the_ticker_leaves_the_last_quote_of_each_symbol(cli: Cli, topic: str) -> None:
    """The same quotes every time; the last of each symbol remains."""
    ran = cli("demo", "ticker", "--symbols", "20", "--messages", "5000", "--topic", topic)
    assert checked(ran) == "the last price of 20 symbols"


def test_a_git_repository_leaves_the_tree_of_its_last_commit(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    """The tree of the last commit remains of a history with unusual paths and deletions."""
    repository = Repository(tmp_path / "repository")
    for name in ('quo"ted', "tab\there", "line\nbreak", "folder/é", b"latin-\xe9", "goes"):
        repository.write(name)
    repository.commit()
    repository.remove("goes")
    repository.write("comes")
    repository.commit()
    ran = cli("demo", "git", str(repository.path), "--topic", topic)
    assert checked(ran).startswith("the compacted view equals git ls-tree -r")
    assert checked(ran).endswith(", 6 paths")
    assert "2 commits, 1 deletion," in ran.out


def test_a_demonstration_reports_a_wrong_result(cli: Cli, topic: str) -> None:
    """The check can fail: if something else is in the topic, the demonstration reports it."""
    assert cli("produce", topic, "-k", "stranger", "-m", "x").code == 0
    ran = cli("demo", "ticker", "--symbols", "2", "--messages", "10", "--topic", topic)
    assert ran.code == 1
    assert "1 difference:" in ran.out
    assert "stranger" in ran.out


def test_a_folder_without_a_repository_is_rejected(cli: Cli, tmp_path: Path) -> None:
    """Reported in git's words, with exit code 2."""
    ran = cli("demo", "git", str(tmp_path))
    assert ran.code == 2
    assert "not a git repository" in ran.err


def test_compact_triggers_waits_and_reports(cli: Cli, topic: str) -> None:
    """Triggered, awaited, reported, and remembered."""
    cli("produce", topic, "-K", ":", stdin=b"a:1\na:2\nb:1\n")
    ran = cli("topics", "compact", topic, "--wait")
    assert ran.code == 0
    assert ran.out.startswith("run 1: 3 -> 2 messages, 1 removed event,")
    assert cli("topics", "compaction-status", topic).out == "Compaction was a success.\n"
    assert cli("topics", "compact", topic).out == f"Nothing new to compact in {topic}.\n"
    (run,) = cli("runs", topic).rows
    assert (run["state"], run["trigger"], run["messages_out"]) == ("success", "admin", 2)


def test_compact_of_a_partitioned_topic_reports_every_partition(cli: Cli, topic: str) -> None:
    """One line of figures for each; one status and one history for all."""
    assert cli("topics", "create-partitioned-topic", topic, "-p", "2").code == 0
    assert cli("produce", topic, "-K", ":", stdin=b"a:1\na:2\nb:1\nc:1\nc:2\n").code == 0
    ran = cli("topics", "compact", topic, "--wait")
    first, second = ran.out.splitlines()
    assert first.startswith(f"public/default/{topic}-partition-0: run 1: ")
    assert second.startswith(f"public/default/{topic}-partition-1: run 1: ")
    assert cli("topics", "compaction-status", topic).out == "Compaction was a success.\n"
    assert cli("topics", "compact", topic).out == f"Nothing new to compact in {topic}.\n"
    runs = cli("runs", topic).rows
    assert sum(run["messages_in"] for run in runs) == 5
    assert sum(run["messages_out"] for run in runs) == 3
    read = cli("read", topic, "--read-compacted", "--until-end").rows
    assert {row["key"]: row["value"] for row in read} == {"a": "2", "b": "1", "c": "2"}


def test_a_second_compaction_during_a_run_conflicts(
    cli: Cli, topic: str, compactor: CompactorProcess
) -> None:
    """A second one is a conflict, waiting may time out; a cancelled run counts as an error."""
    cli("produce", topic, "-K", ":", stdin=b"".join(b"%d:x\n" % n for n in range(200_000)))
    # However fast the run is: it continues until the second one was requested.
    compactor.stop()
    try:
        ran = cli("topics", "compact", topic, "--wait", "--timeout", "1ms")
        assert ran.code == 4
        assert "still running" in ran.err
        assert cli("topics", "compact", topic).code == 5
        assert cli("topics", "cancel-compaction", topic).out == "Run 1 cancelled.\n"
    finally:
        compactor.go_on()
    ran = cli("topics", "compaction-status", topic, "--wait-complete")
    assert ran.code == 1
    assert ran.err == "Error in compaction: cancelled\n"


def _read(terminal: int, seen: bytearray) -> None:
    """Reads to the end."""
    # Linux reports a closed terminal by an error.
    with open(terminal, "rb", buffering=0) as file, suppress(OSError):
        while block := file.read(4096):
            seen.extend(block)


def test_a_terminal_shows_the_phases_of_a_real_run(
    cli: Cli, topic: str, shared_broker: BrokerProcess, compactor: CompactorProcess
) -> None:
    """On standard error, if it is a terminal; the figures go to standard output.

    A phase may be over before the test looks, if another process delays it.
    """
    lines = b"".join(b"%d:x\n" % n for n in range(200_000))

    def shows_a_phase() -> bool:
        cli("produce", topic, "-K", ":", stdin=lines)
        master, slave = os.openpty()
        seen = bytearray()
        reading = threading.Thread(target=_read, args=(master, seen))
        with (
            Admin(shared_broker.url) as admin,
            subprocess.Popen(
                command("--url", shared_broker.url, "topics", "compact", topic, "--wait"),
                stdout=subprocess.PIPE,
                stderr=slave,
                env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
            ) as process,
        ):
            os.close(slave)
            reading.start()
            while process.poll() is None:
                if admin.compaction_status(topic).progress.phase in PHASES:
                    # However fast the run is: its phase continues until it is seen.
                    compactor.stop()
                    try:
                        wait_until(lambda: b"phase" in seen or process.poll() == 0, "the phase")
                    finally:
                        compactor.go_on()
                    break
            out, _ = process.communicate(timeout=WAIT_S)
        reading.join()
        assert process.returncode == 0
        assert b" -> 200,000 messages" in out
        return b"phase one" in seen or b"phase two" in seen

    assert any(shows_a_phase() for _ in range(10))


def test_a_demonstration_starts_a_temporary_broker() -> None:
    """On a temporary directory, which is deleted with it."""
    with own_broker() as url:
        assert answers(url)
        with Admin(url) as admin:
            data_dir = Path(admin.broker_info().data_dir)
        assert data_dir.is_dir()
    assert not answers(url)
    assert not data_dir.exists()


def test_the_ticker_prints_the_same_json_every_time() -> None:
    """Seeded: two runs can be compared."""
    from ledgerfold.broker.demo.examples import quotes

    first = list(quotes(seed=1, symbols=3, messages=50))
    assert first == list(quotes(seed=1, symbols=3, messages=50))
    assert first != list(quotes(seed=2, symbols=3, messages=50))
    assert set(json.loads(first[0].value)) == {"price", "time"}
