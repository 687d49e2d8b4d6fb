"""Tests that files, folders and links named in documents exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FOLDERS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
# `path/to/file.py`, and `folder/` of the checkout with any text after it.
NAMED = re.compile(
    rf"`(?:[\w./-]+/[\w-]+\.(?:py|proto|cases|patch|md)|(?:{'|'.join(FOLDERS)})/[\w./-]*)`"
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def missing(text: str, folder: Path = ROOT) -> list[str]:
    """Paths are the checkout's, links those of the document's folder."""
    paths = [ROOT / match.group().strip("`") for match in NAMED.finditer(text)]
    links = [folder / match.group(1) for match in LINK.finditer(text)]
    return [str(path) for path in (*paths, *links) if not path.exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_names_in_documents_exist(document: Path) -> None:
    """By the path from the top of the checkout, or by a link relative to the document."""
    assert not missing(document.read_text(), document.parent)


@pytest.mark.parametrize("text", ["`broker/none.py`", "`storage/none`", "[a](none.md)"])
def test_a_missing_path_is_detected(text: str) -> None:
    """A canary."""
    assert len(missing(text)) == 1


def test_paths_are_found() -> None:
    """Another one: the architecture names many."""
    assert len(NAMED.findall((ROOT / "docs" / "ARCHITECTURE.md").read_text())) > 40
