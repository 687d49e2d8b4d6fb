r"""Returns the fenced blocks of a document, and the commands in them, in order.

    >>> page = "Here:\n\n```console\n$ echo a \\\n>   b\na b\n$ true  # nothing\n```\n"
    >>> (block,) = blocks_of(page)
    >>> [(step.command, step.shown) for step in block.steps]
    [('echo a \\\n  b', ['a b']), ('true  # nothing', [])]

In ```` ```console ```` blocks, a command follows a prompt, and its output follows below; in ````
```sh ```` blocks, each line is a command. A code block whose first line is `# name.py`, and any
block after a line that ends with a name in backquotes and a colon, is a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tests.tidy import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_FILE_OF_CODE = re.compile(r"# ([\w.]+\.py)\n")
_FILE_NAMED_BEFORE = re.compile(r"`([\w.-]+)`:\s*$")
_PROMPT, _CONTINUATION = "$ ", "> "
COMMANDS = ("console", "sh")


class Step(NamedTuple):
    """A command and its output in the document; [] if the document shows none."""

    command: str
    shown: list[str]


class _Block(NamedTuple):
    language: str
    text: str
    # The number of its first line.
    line: int
    # The text before it.
    before: str


class Block(_Block):
    @cached_property
    def steps(self) -> list[Step]:
        if self.language not in COMMANDS:
            return []
        return list(_shown(self.text) if self.language == "console" else _lines(self.text))

    @property
    def file(self) -> str | None:
        """The name of the file; None if it is none."""
        if self.language in COMMANDS:
            return None
        named = _FILE_OF_CODE.match(self.text) or _FILE_NAMED_BEFORE.search(self.before)
        return named[1] if named else None


def blocks_of(page: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(page):
        indent, language, text = match.groups()
        lines = (line.removeprefix(indent) for line in text.splitlines(keepends=True))
        line = page.count("\n", 0, match.start()) + 2
        found.append(Block(language, "".join(lines), line, page[: match.start()]))
    return found


def document(path: Path) -> list[Block]:
    return blocks_of(path.read_text())


def _shown(text: str) -> Iterator[Step]:
    lines = text.splitlines()
    while lines:
        line = lines.pop(0)
        assert line.startswith(_PROMPT), f"no prompt in front of {line!r}"
        command = line.removeprefix(_PROMPT)
        while command.endswith("\\"):
            command += "\n" + lines.pop(0).removeprefix(_CONTINUATION)
        shown = list[str]()
        while lines and not lines[0].startswith(_PROMPT):
            shown.append(lines.pop(0))
        yield Step(command, shown)


def _lines(text: str) -> Iterator[Step]:
    joined = text.replace("\\\n", "\\\n\0")
    for line in joined.splitlines():
        command = line.replace("\0", "")
        if command.strip() and not command.startswith("#"):
            yield Step(command, [])
