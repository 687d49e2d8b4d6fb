"""Every path that an option, a setting or a call takes is absolute from there on."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.cli.main import make_parser
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.compactor.__main__ import _parser as compactor_parser
from ledgerfold.storage.paths import absolute_path
from ledgerfold.testing import Broker

# By the words before it; "file" and "folder" of the others are read or written by the verb itself.
VERBS = {
    "serve --data d --ready-file d": ("data", "ready_file"),
    "compact t --data d": ("data",),
    "verify d": ("data",),
    "repair d": ("data",),
    "segment dump d": ("file",),
    "cleaner checkpoint --out d": ("out",),
    "demo git d": ("repository",),
}


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Returns the actions of all commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from actions(each)


@pytest.mark.parametrize("parser", [make_parser(), compactor_parser()], ids=["broker", "compactor"])
def test_every_path_option_makes_its_path_absolute(parser: argparse.ArgumentParser) -> None:
    """Each option whose type is a path gives an absolute path."""
    found = list(actions(parser))
    assert not [each.dest for each in found if each.type is Path]
    assert [each.dest for each in found if each.type is absolute_path]


@pytest.mark.parametrize(("line", "names"), VERBS.items(), ids=VERBS)
def test_a_verb_gets_absolute_paths(
    line: str, names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = make_parser().parse_args(line.split())
    assert [getattr(options, each) for each in names] == [tmp_path / "d"] * len(names)


def test_message_files_have_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_parser().parse_args(["produce", "t", "-f", "d"]).file == [tmp_path / "d"]


def test_default_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_parser().parse_args(["demo", "git"]).repository == tmp_path


def test_paths_in_broker_settings_are_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Includes `..`, which the compactor refuses in a path; links resolve as in the system."""
    (tmp_path / "deep" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "folder")
    monkeypatch.chdir(tmp_path)
    settings = BrokerSettings(Path("data"), ready_file=Path("deep/../ready"))
    assert (settings.data_dir, settings.ready_file) == (tmp_path / "data", tmp_path / "ready")
    assert BrokerSettings(Path("link/../data")).data_dir == tmp_path / "deep" / "data"
    assert BrokerSettings(Path("link/data")).data_dir == tmp_path / "link" / "data"


def test_a_broker_for_tests_has_an_absolute_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    broker = Broker("data")
    monkeypatch.chdir("/")
    assert broker._data_dir == tmp_path / "data"
