"""Every command that a document shows or names can be called so: its verb and options are there.

Commands in blocks are run where tests follow the documents (tests/grpc).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ledgerfold.broker.cli.main import make_parser
from tests.support.documents import DOCUMENTS, document

_INLINE = re.compile(r"`(ledgerfold [^`]+)`")
# A placeholder for the reader's file or time in a document.
_GIVEN = {"TIME": "1h"}


def commands_of(path: Path) -> list[str]:
    """In blocks, in pipes, and in the text."""
    steps = [step.command for block in document(path) for step in block.steps]
    parts = [part for command in steps for part in re.split(r"\| |; |&& ", command)]
    found = [part[part.find("ledgerfold ") :] for part in parts if "ledgerfold " in part]
    return [*found, *(" ".join(each.split()) for each in _INLINE.findall(path.read_text()))]


COMMANDS = sorted({command for path in DOCUMENTS for command in commands_of(path)})


def test_documents_contain_commands() -> None:
    assert len(COMMANDS) > 100


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_commands_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Texts may name a command without its arguments."""
    _, *words = shlex.split(command.replace("...", ""), comments=True)
    try:
        make_parser().parse_args([_GIVEN.get(word, word) for word in words])
    except SystemExit:
        assert "the following arguments are required" in capsys.readouterr().err


def test_a_wrong_command_is_detected() -> None:
    """A canary."""
    with pytest.raises(SystemExit):
        make_parser().parse_args(["topics", "compcat", "t"])
