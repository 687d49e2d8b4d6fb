"""The command line starts quickly and explains itself."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from ledgerfold.broker.cli import commands
from ledgerfold.broker.cli.contexts import apply_context
from ledgerfold.broker.cli.main import make_parser
from tests.support.command_line import ledgerfold, subcommands
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.process

# None of them is needed to start, and each takes longer than all the rest.
HEAVY = {"pyspark", "py4j", "pyarrow", "pandas", "numpy"}
# Not even these are needed before a verb runs.
CLIENT = {"grpc", "google", "asyncio", "rocksdict", "rich"}


COMMANDS = list(subcommands(make_parser()))
each_command = pytest.mark.parametrize(
    ("path", "parser"), COMMANDS, ids=[" ".join(path) or "ledgerfold" for path, _ in COMMANDS]
)


def imported(*arguments: str) -> set[str]:
    """Returns the modules that a separate process loads."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ledgerfold", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    modules = re.findall(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", ran.stderr, re.MULTILINE)
    assert "ledgerfold.broker.cli.main" in modules
    return set(modules)


def packages(modules: Iterable[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


def test_help_imports_nothing_heavy() -> None:
    """Loads neither the compaction's nor the client's packages."""
    found = packages(imported("--help"))
    assert not found & (HEAVY | CLIENT)


@pytest.mark.parametrize("arguments", [("topics", "list"), ("runs",), ("info",)])
def test_a_request_imports_nothing_of_compaction(url: str, arguments: tuple[str, ...]) -> None:
    """It loads gRPC, but neither Spark nor Arrow."""
    found = packages(imported("--url", url, *arguments))
    assert "grpc" in found
    assert not found & HEAVY


def test_a_broker_imports_nothing_of_compaction() -> None:
    """A separate process loads all that serving needs, but no codec that is seldom used."""
    program = "import sys, ledgerfold.broker.server.process; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    found = packages(ran.stdout.split())
    assert "grpc" in found
    assert not found & (HEAVY | {"cramjam"})


def test_a_start_returns_memory_that_recovery_has_freed(tmp_path: Path) -> None:
    """The memory of listed records lies below objects that stay."""
    program = (
        "import sys\n"
        "from ledgerfold import heap\n"
        "from ledgerfold.broker.cli.main import main\n"
        "heap.return_freed = lambda: print('returned', flush=True)\n"
        "main(sys.argv[1:])\n"
    )
    serve = ["serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0", "--compactor", "off"]
    with subprocess.Popen([sys.executable, "-c", program, *serve], stdout=subprocess.PIPE) as ran:
        assert ran.stdout is not None
        limit = threading.Timer(WAIT_S, ran.kill)
        limit.start()
        lines = [ran.stdout.readline(), ran.stdout.readline()]
        limit.cancel()
        ran.terminate()
    assert lines[0] == b"returned\n"
    assert b'"event": "ready"' in lines[1]


def test_a_command_imports_no_other_command() -> None:
    """The modules of all commands would stay in a broker's memory."""
    found = {name for name in imported("serve", "--help") if ".cli." in name}
    assert "ledgerfold.broker.cli.serving" in found
    assert not found & {f"ledgerfold.broker.cli.{name}" for name in ("doctor", "topics.topics")}
    assert not any(".cli.demo" in name or ".cli.data" in name for name in found)


def test_each_command_is_listed_with_its_table() -> None:
    """A command that is missing from the list would be unknown."""
    listed = [name for names in commands.NAMES.values() for name in names]
    assert listed == [path[0] for path, _ in COMMANDS if len(path) == 1]
    for names in commands.NAMES.values():
        (table,) = commands.tables_of(names)
        assert table.names == names


@pytest.mark.parametrize("command", [path[0] for path, _ in COMMANDS if len(path) == 1])
def test_a_command_is_complete_without_the_other_modules(command: str) -> None:
    """Its verbs and options are those that it has when all modules are loaded."""
    program = (
        "import sys\n"
        "from ledgerfold.broker.cli.main import make_parser\n"
        "from tests.support.command_line import subcommands\n"
        "for path, parser in subcommands(make_parser(sys.argv[1:])):\n"
        "    print(*path, *parser._option_string_actions)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, command], capture_output=True, text=True, check=True
    )
    expected = {
        " ".join((*path, *parser._option_string_actions))
        for path, parser in COMMANDS
        if path[:1] in ((), (command,))
    }
    assert expected <= set(ran.stdout.splitlines())


@each_command
def test_every_command_and_option_has_a_help_text(
    path: tuple[str, ...], parser: argparse.ArgumentParser
) -> None:
    """Each command, option and argument has a help text."""
    ran = ledgerfold(*path, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"usage: {' '.join(('ledgerfold', *path))}")
    silent = [
        action.option_strings or action.dest
        for action in parser._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert not silent


@each_command
def test_each_command_runs_or_has_subcommands(
    path: tuple[str, ...], parser: argparse.ArgumentParser
) -> None:
    """It runs, or has subcommands of which one is required."""
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    assert (parser.get_default("run") is None) == bool(groups)
    assert all(group.required for group in groups)


def test_topic_verbs_are_those_of_pulsar_admin() -> None:
    """The verbs that exist here have pulsar-admin's names."""
    names = {" ".join(path) for path, _ in COMMANDS}
    policies = {"set-retention", "get-retention", "remove-retention"}
    policies |= {f"{verb}-compaction-threshold" for verb in ("set", "get", "remove")}
    scopes = ("topics", "topicPolicies", "namespaces")
    expected = {f"{scope} {verb}" for scope in scopes for verb in policies}
    expected |= {
        f"topics {verb}"
        for verb in (
            *("list", "create", "delete", "unload", "stats", "stats-internal"),
            *("compact", "compaction-status", "subscriptions", "create-subscription"),
            *("unsubscribe", "last-message-id", "get-message-id"),
        )
    }
    assert expected <= names


def test_the_broker_address_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """LEDGERFOLD_URL is the default; --url overrides it."""
    monkeypatch.setenv("LEDGERFOLD_URL", url)
    assert ledgerfold("info").code == 0
    assert "127.0.0.1:1 " in ledgerfold("--url", "127.0.0.1:1", "info").err


def test_the_default_broker_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that `serve` starts by default, also when LEDGERFOLD_URL is empty."""
    monkeypatch.delenv("LEDGERFOLD_URL", raising=False)
    serves = make_parser().parse_args(["serve", "--data", "d"]).listen

    def address() -> str:
        options = make_parser().parse_args(["info"])
        apply_context(options)
        return str(options.url)

    assert address() == serves
    monkeypatch.setenv("LEDGERFOLD_URL", "")
    assert address() == serves
