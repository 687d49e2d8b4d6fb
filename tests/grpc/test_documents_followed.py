"""The documents, followed from README.md on, on one broker's relative directory.

Every command and snippet runs as written, one document after the other, in a folder without other
files. Each document can also be followed separately. Spark compacts for the first broker of
README.md only. Other brokers find a Java that is too old for Spark, and compact inline: a worker on
Spark takes longer to start than most documents take to follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from ledgerfold.admin import Admin
from tests.support.document_reader import Done, Reader
from tests.support.documents import COMMANDS, DOCUMENTS, document
from tests.tidy import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
# In this order: first the commands of a newcomer.
FOLLOWED = (
    "README.md",
    "docs/API.md",
    "docs/KAFKA.md",
    "docs/STRATEGIES.md",
    "docs/PROFILES.md",
    "docs/ADMIN.md",
    "docs/TESTING.md",
    "docs/FRAMES.md",
    "docs/METRICS.md",
    "docs/UI.md",
    "docs/RELIABILITY.md",
    "docs/CASES.md",
    "CONTRIBUTING.md",
    # Last: its broker is for those that know its secrets.
    "docs/SECURITY.md",
)
# The newcomer's: its text promises Spark.
BROKERS_WITH_JAVA = {"README.md": 1}
# Commands with these words are skipped, because:
PASSED_OVER = {
    "scripts/run": "it makes the environment that this runs in; its demonstration is in test_demos",
    "scripts/test": "it would run this very test",
    "pip install": "test_package installs",
    "scripts/simulate": "tests/simulation/test_documents.py calls it so",
    "scripts/torture": "tests/simulation/test_documents.py calls it so",
    "scripts/cases": "tests/conformance/test_cases.py runs the cases of the document",
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with Reader(tmp_path_factory.mktemp("reader"), PASSED_OVER) as reader:
        yield reader


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_commands_of_a_document_work_as_written(name: str, reader: Reader) -> None:
    done = reader.read(document(ROOT / name), brokers_with_java=BROKERS_WITH_JAVA.get(name, 0))
    look = LOOKS.get(name)
    if look is not None:
        look(done, reader)


def _readme(done: list[Done], reader: Reader) -> None:
    out = {each.what: each.out for each in done}
    first = out["ledgerfold read addresses --read-compacted --until-end"]
    assert re.findall(r'"value":"(.*?)"', first) == ["Milkman Road", "21 Jump St", "Paper Road 21"]
    later = out["ledgerfold read addresses --read-compacted --until-end -o jsonl"]
    assert re.findall(r'"key":"(.*?)"', later) == ["1002", "1001"]
    assert len(out["ledgerfold runs addresses"].splitlines()) == 2
    # Ledgers are also trimmed automatically every two minutes: the second trim may come too late.
    trims = [each.out for each in done if each.what.startswith("ledgerfold topics trim")]
    assert trims[0] == "0 ledgers removed\n"
    with Admin(reader.here("127.0.0.1:7650")) as admin:
        assert admin.internal_stats("public/sensors/readings")["totalSize"] == 0


def _kafka(done: list[Done], reader: Reader) -> None:
    """Cleanings ran, and none failed: the log is clean up to its truncation."""
    out = {each.what: each.out for each in done}
    assert '"Paper Road 21"' in out["ledgerfold read customers --until-end"]
    assert json.loads(out["ledgerfold cleaner status"])["uncleanable"] == {}
    assert "It is clean up to 6." in out["ledgerfold topics truncate-log customers 6"]
    checkpoint = (reader.folder / "cleaner-offset-checkpoint").read_text()
    assert "customers 0 6\n" in checkpoint
    assert (reader.folder / "copies" / "customers-0").is_dir()


def _metrics(done: list[Done], reader: Reader) -> None:
    with urlopen(f"http://{reader.here('127.0.0.1:9464')}/metrics") as answer:
        assert b"ledgerfold_compactor_state" in answer.read()


def _admin(done: list[Done], reader: Reader) -> None:
    """A compaction was started, and the threshold was set."""
    shown = next(each.out for each in done if each.what.endswith("fares/compaction") and each.out)
    assert json.loads(shown)["status"] in ("RUNNING", "SUCCESS")
    threshold = f"http://{reader.here('127.0.0.1:8080')}/admin/v2/namespaces/public/default"
    with urlopen(f"{threshold}/compactionThreshold") as answer:
        assert answer.read() == b"100000000"


def _ui(done: list[Done], reader: Reader) -> None:
    """The page lists the topic."""
    out = {each.what: each.out for each in done}
    assert "parcels" in out["curl -sS --fail http://127.0.0.1:7680/"]


LOOKS = {
    "README.md": _readme,
    "docs/KAFKA.md": _kafka,
    "docs/ADMIN.md": _admin,
    "docs/METRICS.md": _metrics,
    "docs/UI.md": _ui,
}


def test_every_document_with_commands_is_run() -> None:
    """All documents with commands or snippets."""
    runnable = {*COMMANDS, "python"}
    found = {
        str(path.relative_to(ROOT))
        for path in DOCUMENTS
        if any(block.language in runnable for block in document(path))
    }
    assert found == set(FOLLOWED)


def test_skipped_commands_exist_in_the_documents() -> None:
    """No reason outlives its command."""
    commands = [
        step.command for name in FOLLOWED for block in document(ROOT / name) for step in block.steps
    ]
    for words in PASSED_OVER:
        assert any(words in command for command in commands), words


@pytest.mark.parametrize("broken", ["$ false", "$ echo a\nb", "$ ledgerfold topics create a b c"])
def test_a_wrong_document_is_detected(broken: str, tmp_path: Path) -> None:
    """A canary: a command that fails, or prints something else."""
    page = tmp_path / "page.md"
    page.write_text(f"```console\n{broken}\n```\n")
    (tmp_path / "reader").mkdir()
    with Reader(tmp_path / "reader", {}) as reader, pytest.raises(AssertionError):
        reader.read(document(page))
