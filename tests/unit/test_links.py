"""A checkout without its links gets an error that says so (tests/links.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.links import LINKS, check_links, lost_links
from tests.tidy import ROOT


def test_this_checkout_has_its_links() -> None:
    assert lost_links(ROOT) == []
    assert {name: os.readlink(ROOT / name) for name in LINKS} == LINKS


def test_a_file_in_place_of_a_link_is_reported(tmp_path: Path) -> None:
    """Git on Windows writes the link's target into a file."""
    (tmp_path / "ledgerfold").mkdir()
    for name, target in LINKS.items():
        (tmp_path / name).write_text(target)
    with pytest.raises(SystemExit, match=r"lost symbolic links: ledgerfold/broker, .*checkout --"):
        check_links(tmp_path)
