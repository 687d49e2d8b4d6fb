"""The rules for words that a machine can check: docstrings, phrases, modules named.

Docstrings begin with a verb ("Truncates one segment at `offset`.") or a noun phrase ("A bounded LRU
cache."), as in PostgreSQL's, Kafka's and Rust's documentation. Modules that docstrings and comments
name exist: `name.py` in the same folder, `folder/name.py` from the top of the checkout.

As the rules of tests/tidy.py, each gets modules and returns the violations, one per line.

    >>> docstring_openings([Module("storage/a.py", '\"\"\"Of one segment.\"\"\"')])
    ["storage/a.py:1: a docstring begins with 'Of'"]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import PurePosixPath

from tests.tidy import ROOT, Module

# Words with which a sentence without a subject begins, and pronouns.
OPENINGS_NOT_USED = frozenset(
    {
        *("Of", "What", "Whether", "Those", "Who", "How"),
        *("Which", "Where", "Whatever", "Whoever"),
    }
)
# A test's docstring may continue its name with a pronoun.
_PRONOUNS = frozenset({"It", "Its", "They", "This", "That"})
PHRASES_NOT_USED = (
    *("on its way", "on their way", "anew", "one's own", "is told of", "let go of", "lets go"),
    *("goes by", "given out", "one behind the other", "makes good", "as it came", "as they came"),
    *(
        "is told",
        "are told",
        "be told",
        "told of",
        "tells of",
        "hears of",
        "heard of",
        "knows of",
        "goes on",
        "lies behind",
        "to be had",
    ),
    *("whoever", "somebody", "anybody", "of ours", "of theirs", "what there is", "all there is"),
    *("of its own accord", "of their own accord", "lets it go", "comes whole", "stands twice"),
    *("phases one", "gave way", "gives way", "met a defect", "is left of what", "what it returns"),
    *("what it raises", "heeds", "befits", "in vain", "hence", "whence", "thereby", "thus", "lest"),
)
_PHRASES = re.compile(rf"\b(?:{'|'.join(map(re.escape, PHRASES_NOT_USED))})\b")
# Words with which no sentence ends.
_OPEN_ENDS = re.compile(
    r"(?:^|\s)(?:a|an|and|as|at|because|by|for|from|if|in|into|of|on|or|so|than|that|the|to|which|with)$"
)
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")
_SENTENCE_WORDS_LEAST = 6
_JOINED_ITEM = re.compile(r"[.:;] \* \w+|\| \| .{,20}")
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"(?<![\w./*])((?:[\w-]+/)*[\w-]+\.py)\b(?!/)")


def docstring_openings(modules: Iterable[Module]) -> list[str]:
    return [
        f"{module.path}:{line}: a docstring begins with {word!r}"
        for module in modules
        for line, text in module.docstrings
        if (word := text.split(maxsplit=1)[0].strip(".,:;")) in _openings_not_used(module)
    ]


def _openings_not_used(module: Module) -> frozenset[str]:
    is_test = module.path.startswith("tests/")
    return OPENINGS_NOT_USED if is_test else OPENINGS_NOT_USED | _PRONOUNS


def phrases(modules: Iterable[Module]) -> list[str]:
    """Checks docstrings and comments."""
    return [
        f"{module.path}:{line}: {phrase!r} is not used"
        for module in modules
        for line, text in (*module.docstrings, *module.comments)
        for phrase in _phrases_in(text)
    ]


def unfinished_sentences(modules: Iterable[Module]) -> list[str]:
    """Checks paragraphs of docstrings; a list or a block may finish a sentence."""
    return [
        f"{module.path}:{line}: a paragraph ends with {paragraph[-30:]!r}"
        for module in modules
        for line, text in module.docstrings
        for paragraph, after in pairwise([*text.split("\n\n"), ""])
        if _OPEN_ENDS.search(paragraph) and not after.lstrip("\n").startswith((" ", "* ", "1. "))
    ]


def repeated_sentences(modules: Iterable[Module]) -> list[str]:
    """Checks each docstring by itself."""
    return [
        f"{module.path}:{line}: twice: {sentence!r}"
        for module in modules
        for line, text in module.docstrings
        for sentence, times in Counter(_SENTENCE_END.split(" ".join(text.split()))).items()
        if times > 1 and len(sentence.split()) >= _SENTENCE_WORDS_LEAST
    ]


def joined_items(modules: Iterable[Module]) -> list[str]:
    """Checks that items of lists and rows of tables begin a line, as after a careless reflow."""
    return [
        f"{module.path}:{line}: {found!r} does not begin a line"
        for module in modules
        for line, text in module.docstrings
        for found in _JOINED_ITEM.findall(text)
    ]


def text_phrases(texts: Mapping[str, str]) -> list[str]:
    """Checks .proto files and documents, given as texts by path."""
    return [
        f"{path}: {phrase!r} is not used"
        for path, text in texts.items()
        if path.endswith((".proto", ".md"))
        for phrase in _phrases_in(text.replace("//", "") if path.endswith(".proto") else text)
    ]


def joined_commands(texts: Mapping[str, str]) -> list[str]:
    """Checks that each command of a document begins a line, as after a careless reflow.

    `texts` are documents, by path.
    """
    return [
        f"{path}: two commands on a line: {line[:60]!r}"
        for path, text in texts.items()
        if path.endswith(".md")
        for block in _CONSOLE.findall(text)
        for line in block.splitlines()
        if " $ " in line or line.endswith(" $")
    ]


def modules_named(modules: Iterable[Module]) -> list[str]:
    """Checks docstrings and comments of the product."""
    return [
        f"{module.path}:{line}: names {name}, which does not exist"
        for module in modules
        if not module.path.startswith("tests/")
        for line, text in (*module.docstrings, *module.comments)
        for name in _PATH.findall(text)
        if not _exists(module, name)
    ]


def _phrases_in(text: str) -> list[str]:
    flat = " ".join(text.split())
    return list(dict.fromkeys(_PHRASES.findall(flat)))


def _exists(module: Module, name: str) -> bool:
    if "/" in name:
        return (ROOT / name).exists()
    folder = ROOT / PurePosixPath(module.path).parent
    # An example may name a file of the user.
    return (folder / name).exists() or f"import {name.removesuffix('.py')}" in module.source
