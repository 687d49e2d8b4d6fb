"""Tests the command line's answers to typing errors, and where it accepts `--url`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ledgerfold import __main__
from ledgerfold.broker.cli.main import make_parser
from tests.support.command_line import ledgerfold


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["porduce", "t"], "unknown command 'porduce'. Did you mean produce?"),
        (["truncate", "t"], "unknown command 'truncate'. Did you mean topics truncate?"),
        (["topics", "compat", "t"], "unknown verb 'compat'. Did you mean compact?"),
        (["clock", "xyz"], "unknown verb 'xyz'. Choose from: show, set, advance."),
        (["topics", "delete", "t", "--froce"], "(unknown option --froce. Did you mean --force?)"),
        (["--ulr", "h:1", "info"], "(unknown option --ulr. Did you mean --url?)"),
        # It is why another one is missing.
        (["serve", "--dta", "d"], "(unknown option --dta. Did you mean --data?)"),
        (
            ["serve", "--data", "d", "--listne=h:1"],
            "(unknown option --listne. Did you mean --listen?)",
        ),
        (["read", "t", "--zzzzzz"], "(unknown option --zzzzzz.)"),
    ],
)
def test_a_typing_error_shows_the_likely_command(arguments: list[str], says: str) -> None:
    """Shows the usage and the likely command."""
    ran = ledgerfold(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_no_hint_without_a_typing_error() -> None:
    """A known option may be shortened; text after `--` is no option."""
    assert "unknown option" not in ledgerfold("serve", "--dat").err
    assert "unknown option" not in ledgerfold("topics", "delete", "--", "t", "--x").err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "h:1", "topics", "list"],
        ["topics", "--url", "h:1", "list"],
        ["topics", "list", "--url", "h:1"],
        ["info", "--url=h:1"],
        ["--url", "h:0", "topics", "--url", "h:2", "list", "--url", "h:1"],
    ],
)
def test_the_url_is_accepted_at_any_level(arguments: list[str]) -> None:
    """The last one counts."""
    assert make_parser().parse_args(arguments).url == "h:1"


def test_a_file_given_as_a_token(tmp_path: Path) -> None:
    (tmp_path / "t").touch()
    ran = ledgerfold("info", "--token", str(tmp_path / "t"))
    assert ran.code == 2
    assert f"give --token file:{tmp_path / 't'}" in ran.err


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("text")
    ran = ledgerfold("topics", "import", str(other), "--data", str(tmp_path / "data"))
    assert (ran.code, (tmp_path / "data").exists()) == (2, False)
    assert f"{other} is not a file that `topics export` wrote" in ran.err


def test_an_early_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """During the imports, too."""

    class Interrupted(dict[str, object]):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "ledgerfold.broker.cli.main", Interrupted())
    assert __main__.main() == 130


def test_a_name_that_is_not_text_is_rejected() -> None:
    """It cannot be sent in a request, so it is an error."""
    ran = ledgerfold("topics", "stats", "t\udcff")
    assert ran.code == 2
    assert "is not valid UTF-8" in ran.err
    assert "Traceback" not in ran.err
