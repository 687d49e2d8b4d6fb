"""Completion in real shells, from the code that `ledgerfold completion` prints."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.admin import Admin
from ledgerfold.broker.cli.contexts import Contexts
from tests.conftest import MakeBroker
from tests.support.command_line import ledgerfold
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.process
_BASH = """
source <(ledgerfold completion bash)
COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
read -ra COMP_WORDS <<< "$1"
if [[ "$1" == *" " ]]; then COMP_WORDS+=(""); fi
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
complete -p ledgerfold >&2
_python_argcomplete ledgerfold "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def shell(name: str, *arguments: str, folder: Path) -> str:
    """Runs a shell that finds this `ledgerfold`. Returns its output."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    bin_ = Path(sys.executable).parent
    environment = {"PATH": f"{bin_}:/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb"}
    ran = subprocess.run(
        [path, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    return ran.stdout


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("ledgerfold compl", {"completion"}),
        ("ledgerfold topics compact", {"compact", "compaction-status"}),
        ("ledgerfold serve --durab", {"--durability"}),
        ("ledgerfold serve --durability ", {"fsync", "os"}),
        ("ledgerfold serve --data x --log-level D", {"DEBUG"}),
        ("ledgerfold topics set-emulation t --profile pulsar", {"pulsar-4"}),
        ("ledgerfold import my", {"my\\ orders.csv"}),
        ("ledgerfold serve --compactor ", {"auto", "spark", "inline", "off"}),
        ("ledgerfold serve --compactor s", {"spark"}),
        ("ledgerfold --context st", {"staging"}),
        ("ledgerfold topics list --context ", {"local", "staging"}),
        ("ledgerfold context use ", {"local", "staging", "-h", "--help"}),
        ("ledgerfold context delete l", {"local"}),
    ],
)
def test_bash(line: str, completed: set[str], tmp_path: Path) -> None:
    """Commands, options, their values, and files, in a folder whose name has a space.

    Values without fixed choices were not among the lines: the shell offered files.
    """
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "my orders.csv").touch()
    contexts = Contexts(folder / ".config" / "ledgerfold" / "contexts.json")
    contexts.tables = {"local": {"url": "h:1"}, "staging": {"url": "h:2"}}
    contexts.save()
    out = shell("bash", "--norc", "-c", _BASH, "bash", line, folder=folder)
    assert {each.strip() for each in out.splitlines()} - {""} == completed


def test_damaged_contexts_complete_nothing(tmp_path: Path) -> None:
    path = tmp_path / ".config" / "ledgerfold" / "contexts.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    out = shell("bash", "--norc", "-c", _BASH, "bash", "ledgerfold context use ", folder=tmp_path)
    assert set(out.split()) == {"-h", "--help"}


# A shell in a terminal whose widget prints what it would offer, and the line afterwards.
_ZSH = r"""
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner 'PS1=; autoload -U compinit; compinit -u -D; source <(ledgerfold completion zsh)'
zpty -w inner 'offer() { local -a hits; builtin compadd -O hits "$@"; print -rl -- "<"${^hits}">" }'
zpty -w inner 'compadd() { [[ " $* " == *" -[OAD] "* ]] || offer "$@"; builtin compadd "$@" }'
zpty -w inner 'finish() { print -r -- "END"; exit }; comppostfuncs=(finish)'
zpty -w inner 'bindkey "^I" complete-word; print READY_'
zpty -r inner before $'*\nREADY_*'
zpty -w -n inner "$1"$'\t'
zpty -r inner offered '*END*'
print -r -- "$offered"
"""
# The answers are the same as in bash, but for each shell its own code asks for them.
each_line = pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("ledgerfold compl", {"completion"}),
        ("ledgerfold topics compact", {"compact", "compaction-status"}),
        ("ledgerfold serve --durab", {"--durability"}),
        ("ledgerfold serve --durability ", {"fsync", "os"}),
        ("ledgerfold serve --compactor ", {"auto", "spark", "inline", "off"}),
        ("ledgerfold import orders", {"orders.csv"}),
    ],
)


@each_line
def test_zsh(line: str, completed: set[str], tmp_path: Path) -> None:
    """Verbs, nested verbs, options, values and files, as the shell offers them. A test that
    completes a line in zsh had been missing.
    """
    (tmp_path / "orders.csv").touch()
    offered = shell("zsh", "-f", "-c", _ZSH, "zsh", line, folder=tmp_path)
    assert set(re.findall(r"<([^<>\n]+)>", offered)) == completed


@each_line
def test_fish(line: str, completed: set[str], tmp_path: Path) -> None:
    """The same in fish, whose answers may have a tab and a description."""
    (tmp_path / "orders.csv").touch()
    code = f"ledgerfold completion fish | source; complete -C '{line}'"
    offered = shell("fish", "-N", "-c", code, folder=tmp_path)
    assert {each.partition("\t")[0] for each in offered.splitlines()} == completed


_COMPLETED = {
    "bash": ("--norc", "-c", _BASH, "bash"),
    "zsh": ("-f", "-c", _ZSH, "zsh"),
    "fish": ("-N", "-c", "ledgerfold completion fish | source; complete -C $argv[1]"),
}


@pytest.mark.parametrize("name", _COMPLETED)
def test_topics_of_the_broker(name: str, tmp_path: Path, broker_process: MakeBroker) -> None:
    """Short names, full ones of other namespaces, and nothing if the broker does not answer. Files
    were offered where a topic is expected, and nothing within a quote that is still open, which no
    test had typed.
    """
    broker = broker_process().url
    with Admin(broker) as admin:
        admin.create_namespace("public/other")
        for topic in ("prices", "products", "orders", "public/other/prices"):
            admin.create_topic(topic)

    def offered(words: str, url: str = broker) -> str:
        line = f"ledgerfold topics stats --url {url} {words}"
        return shell(name, *_COMPLETED[name], line, folder=tmp_path)

    both = offered("pr")
    assert "prices" in both
    assert "products" in both
    assert "orders" not in both
    for quote in "'", '"':
        quoted = offered(f"{quote}pr")
        assert "prices" in quoted
        assert "products" in quoted
        assert "orders" not in quoted
    assert "other/prices" in offered("persistent://public/ot")
    assert "orders" not in offered("or", url="127.0.0.1:1")


def test_an_unknown_shell_is_refused() -> None:
    assert ledgerfold("completion", "tcsh").code == 2
