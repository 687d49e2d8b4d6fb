"""Contexts: names for brokers, which wins, and a file that is damaged."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from ledgerfold.broker.cli.connecting import credentials_of
from ledgerfold.broker.cli.contexts import apply_context, contexts_path, load
from ledgerfold.broker.cli.main import make_parser
from ledgerfold.storage.errors import InvalidRequest
from tests.support.command_line import ledgerfold


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of settings, empty."""
    for name in ("LEDGERFOLD_URL", "LEDGERFOLD_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def url_of(*arguments: str) -> str:
    options = argparse.Namespace()
    make_parser().parse_args([*arguments, "info"], options)
    apply_context(options)
    return str(options.url)


def test_contexts_are_set_listed_used_and_deleted() -> None:
    assert ledgerfold("context", "list").rows == []
    assert ledgerfold("context", "set", "local", "--url", "127.0.0.1:7650").code == 0
    assert ledgerfold("context", "set", "staging", "--url", "[::1]:7").code == 0
    assert ledgerfold("context", "use", "staging").code == 0
    assert ledgerfold("context", "list").rows == [
        {"name": "local", "current": False, "url": "127.0.0.1:7650"},
        {"name": "staging", "current": True, "url": "[::1]:7"},
    ]
    assert ledgerfold("context", "delete", "staging").code == 0
    assert (load().current, [*load().tables]) == (None, ["local"])


def test_a_context_holds_credentials(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are absolute from there on; what a command gives has priority, and --url has none."""
    monkeypatch.chdir(folder)
    given = ("--token", "file:t", "--tls-trust-certs", "ca.pem")
    assert ledgerfold("context", "set", "safe", "--url", "ledgerfold+ssl://h:1", *given).code == 0
    options = argparse.Namespace()
    make_parser().parse_args(["--context", "safe", "info"], options)
    apply_context(options)
    assert (options.token, options.tls_trust_certs) == (f"file:{folder}/t", f"{folder}/ca.pem")
    options = argparse.Namespace()
    make_parser().parse_args(["--context", "safe", "info", "--token", "own"], options)
    apply_context(options)
    assert (options.token, options.tls_trust_certs) == ("own", f"{folder}/ca.pem")
    monkeypatch.setenv("LEDGERFOLD_TOKEN", "another's")
    assert "authentication" in credentials_of(argparse.Namespace())
    assert ledgerfold("context", "set", "open", "--url", "h:3").code == 0
    options = argparse.Namespace()
    make_parser().parse_args(["--context", "open", "info"], options)
    apply_context(options)
    assert credentials_of(options) == {}
    options = argparse.Namespace()
    make_parser().parse_args(["info", "--url", "h:2"], options)
    apply_context(options)
    assert not hasattr(options, "token")
    assert "file:" not in ledgerfold("context", "list").out


def test_sources_of_the_brokers_address_by_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """--url, --context, LEDGERFOLD_URL, LEDGERFOLD_CONTEXT, the current context, the default."""
    assert url_of() == "127.0.0.1:7650"
    for name in ("current", "variable", "given"):
        ledgerfold("context", "set", name, "--url", f"{name}:1")
    ledgerfold("context", "use", "current")
    assert url_of() == "current:1"
    monkeypatch.setenv("LEDGERFOLD_CONTEXT", "variable")
    assert url_of() == "variable:1"
    monkeypatch.setenv("LEDGERFOLD_URL", "url:1")
    assert url_of() == "url:1"
    assert url_of("--context", "given") == "given:1"
    assert url_of("--url", "h:1") == "h:1"
    with pytest.raises(InvalidRequest, match="only one of --url and --context"):
        url_of("--url", "h:1", "--context", "given")


def test_only_the_owner_can_read_the_file(folder: Path) -> None:
    """With any umask, and after a replacement."""
    before = os.umask(0)
    try:
        for url in ("h:1", "h:2"):
            ledgerfold("context", "set", "a", "--url", url)
    finally:
        os.umask(before)
    assert contexts_path() == folder / "ledgerfold" / "contexts.json"
    assert contexts_path().stat().st_mode & 0o777 == 0o600
    assert contexts_path().parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in contexts_path().parent.iterdir()] == ["contexts.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"current": "a", "cont',
        "[]",
        "null",
        "{}",
        '{"current": 1, "contexts": {}}',
        '{"current": null, "contexts": []}',
        '{"current": null, "contexts": {"a": "h:1"}}',
        '{"current": null, "contexts": {"a": {"url": 1}}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_refused_and_kept(text: str) -> None:
    """A command that names its broker, and `serve`, do not need it."""
    contexts_path().parent.mkdir()
    contexts_path().write_text(text)
    for arguments in (("info",), ("context", "list"), ("context", "set", "a", "--url", "h:1")):
        ran = ledgerfold(*arguments)
        assert (ran.code, "is not a valid file of contexts" in ran.err) == (2, True), ran
    assert contexts_path().read_text() == text
    assert url_of("--url", "h:1") == "h:1"


def test_names_and_addresses_are_checked() -> None:
    for name in ("", "-x", ".x", "a b", "a/b", "x" * 65):
        assert ledgerfold("context", "set", "--url", "h:1", "--", name).code == 2
    assert ledgerfold("context", "set", "a", "--url", "h").code != 0
    assert load().tables == {}
    ledgerfold("context", "set", "staging", "--url", "h:1")
    ran = ledgerfold("context", "use", "stagin")
    assert (ran.code, "Did you mean staging?" in ran.err) == (2, True)
    assert ledgerfold("--context", "none", "info").code == 2


def test_options_of_a_newer_version_are_kept_and_ignored() -> None:
    contexts_path().parent.mkdir()
    contexts_path().write_text('{"current": "a", "contexts": {"a": {"url": "h:1", "run": "x"}}}')
    options = argparse.Namespace()
    apply_context(options)
    assert (options.url, hasattr(options, "run")) == ("h:1", False)
    ledgerfold("context", "set", "b", "--url", "h:2")
    assert load().tables["a"] == {"url": "h:1", "run": "x"}


def test_tls_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option is a mistake; a variable is for other brokers. Errors named Python's arguments."""
    monkeypatch.setenv("LEDGERFOLD_TLS_TRUST_CERTS", "ca.pem")
    assert credentials_of(argparse.Namespace(url="h:1")) == {}
    secured = credentials_of(argparse.Namespace(url="ledgerfold+ssl://h:1"))
    assert secured == {"tls_trust_certs_file_path": "ca.pem"}
    for option in ({"tls_client_cert": "c.pem"}, {"tls_allow_insecure": True}):
        (name,) = option
        with pytest.raises(InvalidRequest, match=f"--{name.replace('_', '-')} has no effect"):
            credentials_of(argparse.Namespace(url="h:1", **option))


@pytest.mark.parametrize("option", ["--tls-trust-certs", "--tls-client-cert", "--tls-client-key"])
def test_a_context_without_tls_has_no_tls_files(option: str) -> None:
    """Each command with the context was refused, not the one that made the mistake."""
    ran = ledgerfold("context", "set", "a", "--url", "h:1", option, "a.pem")
    assert (ran.code, f"{option} has no effect without TLS" in ran.err) == (2, True), ran
    assert load().tables == {}
