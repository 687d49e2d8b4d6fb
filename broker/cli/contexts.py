"""`context`: names for brokers, in a file of the user.

    ledgerfold context set staging --url staging.example:7650
    ledgerfold context use staging
    ledgerfold --context local topics list

A context is a table of options of the connection (CONNECTION). One file has all of them:
ledgerfold/contexts.json in XDG_CONFIG_HOME (default ~/.config), which only its owner can read. It
is replaced as a whole. A context applies as a whole, too, in this order: --context,
LEDGERFOLD_CONTEXT, the current one; --url and LEDGERFOLD_URL come before (docs/CONFIGURATION.md).
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledgerfold.broker.cli.connecting import TOKEN_FILE, refuse_tls
from ledgerfold.broker.cli.output import ROWS, print_rows
from ledgerfold.broker.cli.serving import DEFAULT_LISTEN
from ledgerfold.broker.cli.suggestions import did_you_mean
from ledgerfold.broker.cli.verbs import Verbs, argument
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path

COMMANDS = Verbs()
# The options of a connection that a context may have, as attributes of the parsed options.
_FILES = ("tls_trust_certs", "tls_client_cert", "tls_client_key")
CONNECTION = ("url", "token", *_FILES)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FILE_BYTES_MAX = 1024 * 1024

Table = dict[str, str]


@dataclass
class Contexts:
    """The contents of the file. `current`: the context in use; None: none."""

    path: Path
    current: str | None = None
    tables: dict[str, Table] = field(default_factory=dict)

    def get(self, name: str) -> Table:
        """Returns a context. Raises InvalidRequest."""
        if name not in self.tables:
            hint = did_you_mean(name, self.tables)
            raise InvalidRequest(f"There is no context {name!r} in {self.path}.{hint}")
        return self.tables[name]

    def save(self) -> None:
        """Replaces the file. Raises DiskFailure."""
        from ledgerfold.storage.files import replace_file

        document = {"current": self.current, "contexts": self.tables}
        # Tokens are secrets: from its creation on, only the owner can read the file.
        before = os.umask(0o077)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, [f"{json.dumps(document, indent=2)}\n".encode()])
        finally:
            os.umask(before)


def contexts_path() -> Path:
    # A relative one is ignored, as the XDG specification says.
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    folder = config_home if config_home.is_absolute() else Path.home() / ".config"
    return folder / "ledgerfold" / "contexts.json"


def load() -> Contexts:
    """Reads the file; without one there are no contexts. Raises InvalidRequest, OSError."""
    path = contexts_path()
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts(path)
    try:
        document = json.loads(data[:_FILE_BYTES_MAX])
        current, tables = document["current"], document["contexts"]
        is_valid = current is None or isinstance(current, str)
        is_valid = is_valid and all(
            isinstance(table, dict) and all(isinstance(each, str) for each in table.values())
            for table in tables.values()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise InvalidRequest(
            f"{path} is not a valid file of contexts: correct it, or delete it and set them again."
        )
    return Contexts(path, current, tables)


def apply_context(options: argparse.Namespace) -> None:
    """Sets the options of the connection that were not given. Raises InvalidRequest, OSError."""
    named = getattr(options, "context", None)
    # Only then a conflict with it is an error.
    options.is_url_given = hasattr(options, "url")
    if options.is_url_given:
        if named is not None:
            raise InvalidRequest("Give only one of --url and --context.")
        return
    options.url = DEFAULT_LISTEN
    if named is None and (url := os.environ.get("LEDGERFOLD_URL")):
        options.url = url
        return
    contexts = load()
    name = named or os.environ.get("LEDGERFOLD_CONTEXT") or contexts.current
    if name is None:
        return
    for option, value in contexts.get(name).items():
        # A newer version may have set others. Credentials on the command line have priority.
        if option == "url" or (option in CONNECTION and not hasattr(options, option)):
            setattr(options, option, value)
    for option in CONNECTION:
        # Those in the environment are for another broker: they are not sent to this one.
        if not hasattr(options, option):
            setattr(options, option, "")


CONTEXT = COMMANDS.command(
    "context",
    "name brokers, and choose the one that commands use",
    description="Stores the addresses of brokers under names, in a file that only you can read. "
    "--context NAME selects one for a single command, `context use` for all later commands.",
    calls_broker=False,
)
_NAMED = argument("name", "the name of the context")


@CONTEXT.verb("list", "list the contexts", ROWS, calls_broker=False)
def _list(options: argparse.Namespace) -> None:
    contexts = load()

    def rows() -> Iterator[dict[str, Any]]:
        for name, table in sorted(contexts.tables.items()):
            yield {"name": name, "current": name == contexts.current, "url": table.get("url", "")}

    print_rows(options, rows())


@CONTEXT.verb("use", "select the context that commands use by default", calls_broker=False)
@_NAMED
def _use(options: argparse.Namespace) -> None:
    contexts = load()
    contexts.get(options.name)
    contexts.current = options.name
    contexts.save()


@CONTEXT.verb("set", "create or replace a context", calls_broker=False)
@argument("name", "1 to 64 letters, digits, -, _ and .")
@argument("--url HOST:PORT", "the broker", required=True)
@argument("--token TOKEN", "a token, or file:PATH, which is read by each command")
@argument("--tls-trust-certs FILE", "the authorities to trust", type=absolute_path)
@argument("--tls-client-cert FILE", "this client's certificate", type=absolute_path)
@argument("--tls-client-key FILE", "its private key", type=absolute_path)
def _set(options: argparse.Namespace) -> None:
    from ledgerfold.broker.client.streams.address import address_of

    if _NAME.fullmatch(options.name) is None:
        allowed = "1 to 64 letters, digits, -, _ and ., the first of them a letter or digit"
        raise InvalidRequest(f"{options.name!r:.100} is not a name: {allowed}.")
    address_of(options.url)
    for name in _FILES:
        refuse_tls(options.url, name, getattr(options, name))
    contexts = load()
    if options.token is not None and options.token.startswith(TOKEN_FILE):
        options.token = f"{TOKEN_FILE}{absolute_path(options.token.removeprefix(TOKEN_FILE))}"
    connection = {name: getattr(options, name) for name in CONNECTION}
    contexts.tables[options.name] = {
        name: str(value) for name, value in connection.items() if value is not None
    }
    contexts.save()


@CONTEXT.verb("delete", "delete a context", calls_broker=False)
@_NAMED
def _delete(options: argparse.Namespace) -> None:
    contexts = load()
    contexts.get(options.name)
    del contexts.tables[options.name]
    if contexts.current == options.name:
        contexts.current = None
    contexts.save()
