"""`tokens`: keys and tokens, with the verbs and options of `pulsar tokens`. They need no broker.

ledgerfold tokens create-secret-key --output hmac.key
ledgerfold tokens create --secret-key hmac.key --subject billing --expiry-time 1y
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import token_in
from ledgerfold.broker.cli.units import TIME
from ledgerfold.broker.cli.verbs import Argument, Verbs, argument, flag, one_of
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from ledgerfold.broker.security.tokens import Key

COMMANDS = Verbs()
VERBS = COMMANDS.command(
    "tokens", "create and check the tokens of clients, and their keys", calls_broker=False
)
_OFFLINE = {"calls_broker": False}
_SECRET = argument("-sk --secret-key KEY", "a secret key: a file, or data:;base64,KEY")
_SIGNS = one_of(_SECRET, argument("-pk --private-key KEY", "the private key of a pair"))
_VERIFIES = one_of(_SECRET, argument("-pk --public-key KEY", "the public key of a pair"))
_SECONDS_MS = 1000


def _new_file(usage: str, help_: str) -> Argument:
    return argument(usage, help_, type=absolute_path, required=True)


def _write_private(path: Path, data: bytes) -> None:
    """Writes a new file that only its owner can read. Raises OSError, also if it exists."""
    with open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
        file.write(data)


@VERBS.verb("create-secret-key", "create a key for HS256", **_OFFLINE)
@argument("-o --output FILE", "the file to write; default: standard output", type=absolute_path)
@flag("-b --base64", "encode the key in base64")
def _create_secret(options: argparse.Namespace) -> None:
    from ledgerfold.broker.security.tokens import new_secret

    secret = new_secret()
    if options.base64:
        secret = base64.b64encode(secret)
    if options.output is None:
        sys.stdout.buffer.write(secret)
    else:
        _write_private(options.output, secret)


@VERBS.verb("create-key-pair", "create a private and a public key, in DER", **_OFFLINE)
@argument(
    "-a --signature-algorithm NAME", "RS256 (the default) or ES256", default="RS256",
    choices=("RS256", "ES256"),
)  # fmt: skip
@_new_file("--output-private-key FILE", "the private key, which signs tokens")
@_new_file(
    "--output-public-key FILE", "the file for the public key, for `serve --token-public-key`"
)
def _create_pair(options: argparse.Namespace) -> None:
    from ledgerfold.broker.security.tokens import new_pair

    private, public = new_pair(options.signature_algorithm)
    _write_private(options.output_private_key, private)
    options.output_public_key.write_bytes(public)


@VERBS.verb("create", "create a token for a role", _SIGNS, **_OFFLINE)
@argument("-s --subject ROLE", "the role", required=True)
@argument("-e --expiry-time TIME", "how long it is valid, such as 1h or 365d; default: forever",
          type=TIME["type"], metavar="TIME")  # fmt: skip
@argument("--audience TEXT", "the audience, in the claim aud")
@argument("-o --output FILE", "the file to write; default: standard output", type=absolute_path)
def _create(options: argparse.Namespace) -> None:
    from ledgerfold.broker.security.tokens import new_token

    claims = dict[str, Any]()
    if options.expiry_time is not None:
        claims["exp"] = time.time_ns() // 10**9 + options.expiry_time // _SECONDS_MS
    if options.audience is not None:
        claims["aud"] = options.audience
    token = new_token(_signing(options), options.subject, claims)
    if options.output is None:
        print(token)
    else:
        _write_private(options.output, f"{token}\n".encode())


@VERBS.verb("validate", "check a token, and print its claims", _VERIFIES, **_OFFLINE)
@argument("token", "the token, or file:PATH; default: standard input", nargs="?")
def _validate(options: argparse.Namespace) -> None:
    from ledgerfold.broker.security.tokens import TokenVerifier

    print(json.dumps(TokenVerifier(_verifying(options)).claims(_token(options.token))))


def _signing(options: argparse.Namespace) -> Key:
    from ledgerfold.broker.security.tokens import private_key, read_key, secret_key

    if options.private_key is not None:
        return private_key(read_key(options.private_key))
    return secret_key(read_key(_required(options.secret_key, "--private-key")))


def _verifying(options: argparse.Namespace) -> Key:
    from ledgerfold.broker.security.tokens import public_key, read_key, secret_key

    if options.public_key is not None:
        return public_key(read_key(options.public_key))
    return secret_key(read_key(_required(options.secret_key, "--public-key")))


def _required(secret: str | None, other: str) -> str:
    if secret is None:
        raise InvalidRequest(f"Name a key: --secret-key or {other}.")
    return secret


def _token(argument: str | None) -> str:
    return sys.stdin.read().strip() if argument is None else token_in(argument)
