"""Words keep their rules (tests/plain_words.py), and each rule can find something."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests import plain_words, tidy
from tests.tidy import Module

Rule = Callable[[Iterable[Module]], list[str]]
RULES: dict[Rule, str] = {
    plain_words.docstring_openings: '"""What a log tells."""',
    plain_words.phrases: "x = 1  # A run on its\nway = 2  # on its way",
    # No test had detected a sentence that an edit cut off, or left twice.
    plain_words.unfinished_sentences: '"""A run.\n\nIt waits for\n\nEach run ends."""',
    plain_words.repeated_sentences: '"""It waits for the end of it. It waits for the end of it."""',
    plain_words.joined_items: '"""Rules: * It waits."""',
    plain_words.modules_named: '"""As in none.py and storage/none.py."""',
}


@pytest.fixture(scope="module")
def tree() -> list[Module]:
    return [each for folder in (*tidy.PRODUCT, "tests") for each in tidy.parsed(folder)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_all_modules_keep_the_rule(rule: Rule, tree: list[Module]) -> None:
    found = rule(tree)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_violation_of_each_rule_is_detected(rule: Rule) -> None:
    """A canary."""
    assert rule([Module("broker/a.py", RULES[rule])])


def test_the_wire_contract_and_documents_keep_the_rule() -> None:
    assert not plain_words.text_phrases(tidy.texts())


@pytest.mark.parametrize("path", ["a.proto", "a.md"])
def test_a_violation_in_a_text_is_detected(path: str) -> None:
    """A canary."""
    comment = "// " if path.endswith(".proto") else ""
    assert plain_words.text_phrases({path: f"{comment}A run on its\n{comment}way.\n"})


def test_each_command_of_a_document_begins_a_line() -> None:
    # A reflow had joined the commands of CASES.md, which no test runs: they need arguments.
    assert not plain_words.joined_commands(tidy.texts())


def test_joined_commands_are_detected() -> None:
    """A canary."""
    assert plain_words.joined_commands({"a.md": "```console\n$ one # first $ two\n```\n"})
