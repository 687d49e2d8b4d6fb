"""Completion in real shells, from the code that `ledgerfold completion` prints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.broker.cli.contexts import Contexts
from tests.support.command_line import TIMEOUT_S, ledgerfold

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
        timeout=TIMEOUT_S,
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


def test_zsh(tmp_path: Path) -> None:
    """Its code defines and registers a completion."""
    code = "autoload -U compinit; compinit -u; source <(ledgerfold completion zsh); "
    out = shell("zsh", "-f", "-c", f"{code} print -r -- $_comps[ledgerfold]", folder=tmp_path)
    assert "_python_argcomplete" in out


def test_fish(tmp_path: Path) -> None:
    code = "ledgerfold completion fish | source; complete -C 'ledgerfold compl'"
    assert "completion" in shell("fish", "-N", "-c", code, folder=tmp_path)


def test_an_unknown_shell_is_refused() -> None:
    assert ledgerfold("completion", "tcsh").code == 2
