"""Tests the exit codes of the command line, by error class."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from ledgerfold.broker.cli import exit_codes, main
from ledgerfold.broker.cli.exit_codes import exit_code
from ledgerfold.storage import errors
from ledgerfold.storage.errors import LedgerfoldError
from tests.support.command_line import Ran, ledgerfold

README = (Path(__file__).parents[3] / "README.md").read_text()

# NOTE: every class of the tree, so that a new one is decided upon here.
EXPECTED: dict[type[LedgerfoldError], int] = {
    errors.LedgerfoldError: 1,
    errors.RequestError: 1,
    errors.InvalidRequest: 2,
    errors.UnknownStrategy: 2,
    errors.InvalidStrategy: 2,
    errors.StrategyNotAllowed: 2,
    errors.MessageTooLarge: 2,
    errors.LimitExceeded: 2,
    errors.InvalidSchema: 2,
    errors.SchemaNotFound: 3,
    errors.IncompatibleSchema: 5,
    errors.WrongChecksum: 2,
    errors.InvalidUrl: 2,
    errors.TopicNotFound: 3,
    errors.TopicIsPartitioned: 3,
    errors.TopicExists: 5,
    errors.TenantNotFound: 3,
    errors.TenantExists: 5,
    errors.NamespaceNotFound: 3,
    errors.SnapshotNotFound: 3,
    errors.FaultNotFound: 3,
    errors.MessageNotFound: 3,
    errors.NamespaceExists: 5,
    errors.SnapshotExists: 5,
    errors.TopicBusy: 5,
    errors.TopicTerminated: 1,
    errors.SubscriptionNotFound: 3,
    errors.SubscriptionExists: 5,
    errors.SubscriptionBusy: 5,
    errors.InvalidHashRanges: 2,
    errors.NothingExpired: 5,
    errors.NotAllowed: 1,
    errors.ProducerBusy: 5,
    errors.ProducerFenced: 5,
    errors.BacklogQuotaExceeded: 5,
    errors.ProducerBlocked: 5,
    errors.KafkaError: 1,
    errors.RecordsRefused: 1,
    errors.AddressInUse: 5,
    errors.CompactionRunning: 5,
    errors.StorageError: 1,
    errors.Corruption: 6,
    errors.IncompatibleFormat: 1,
    errors.UnknownFeatures: 1,
    errors.MetadataLost: 6,
    errors.MissingFile: 6,
    errors.CompactedLedgerDamaged: 6,
    errors.DiskFailure: 1,
    errors.DirectoryLocked: 5,
    errors.CompactionError: 1,
    errors.CompactionFailed: 1,
    errors.SegmentIndexFull: 1,
    errors.StrategyFailed: 1,
    errors.CompactionCancelled: 1,
    errors.CompactionFenced: 1,
    errors.EntryTooLarge: 1,
    errors.CompactorUnavailable: 1,
    errors.CompactionQueueFull: 1,
    errors.ServiceError: 1,
    errors.Unavailable: 1,
    errors.Moved: 1,
    errors.AuthenticationFailed: 1,
    errors.AuthorizationFailed: 1,
    errors.Timeout: 4,
    errors.AlreadyClosed: 1,
    errors.Overloaded: 1,
    errors.TooManyRequests: 1,
}


def every_class(root: type[LedgerfoldError] = LedgerfoldError) -> set[type[LedgerfoldError]]:
    return {root}.union(*map(every_class, root.__subclasses__()))


def made(cls: type[BaseException]) -> BaseException:
    """One of that class, however many arguments it takes."""
    error = cls.__new__(cls)
    Exception.__init__(error, "what happened")
    if isinstance(error, errors.KafkaError):
        error.kafka_code = errors.KafkaErrorKind.INVALID_RECORD.code
    return error


def ended_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Ran:
    """Runs a command that raises `error`. Returns its result."""

    class Parser:
        def parse_args(self, arguments: object, options: argparse.Namespace) -> None:
            options.url, options.run = "127.0.0.1:7650", self.run

        def run(self, options: object) -> int:
            raise error

    monkeypatch.setattr(main, "make_parser", lambda arguments: Parser())
    return ledgerfold("info")


def test_every_class_has_a_code() -> None:
    """Tests the whole tree of storage/errors.py, and other errors."""
    # Classes made elsewhere, by tests for instance, are not the tree's.
    tree = {cls for cls in every_class() if cls.__module__ == LedgerfoldError.__module__}
    assert tree == set(EXPECTED)
    assert {cls: exit_code(made(cls)) for cls in tree} == EXPECTED
    assert exit_code(FileNotFoundError()) == 3
    assert exit_code(PermissionError()) == 1
    assert exit_code(KeyboardInterrupt()) == 130


def test_invalid_settings_are_invalid_input() -> None:
    """A setting or name that Kafka rejects is a usage error; records that it rejects are not."""
    codes = {kind.name: exit_code(errors.KafkaError(kind, "why")) for kind in errors.KafkaErrorKind}
    assert {name for name, code in codes.items() if code == 2} == {
        "INVALID_CONFIG",
        "INVALID_TOPIC_EXCEPTION",
    }
    assert set(codes.values()) == {1, 2}


@pytest.mark.parametrize("cls", EXPECTED, ids=lambda cls: cls.__name__)
def test_a_command_exits_with_the_code_of_its_error(
    monkeypatch: pytest.MonkeyPatch, cls: type[LedgerfoldError]
) -> None:
    """A sentence on standard error, the code, nothing on standard output, no traceback."""
    ran = ended_with(monkeypatch, made(cls))
    assert ran.code == EXPECTED[cls]
    assert ran.out == ""
    assert ran.err.startswith("ledgerfold: ")
    assert "what happened" in ran.err
    assert "Traceback" not in ran.err


def test_an_interruption_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who interrupts a command needs no message."""
    assert ended_with(monkeypatch, KeyboardInterrupt()) == Ran(130, "", "")


def test_an_error_of_the_system_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every Unix command says it."""
    ran = ended_with(monkeypatch, FileNotFoundError(2, "No such file or directory", "a.csv"))
    assert ran == Ran(3, "", "ledgerfold: a.csv: No such file or directory\n")


def test_a_missing_broker() -> None:
    """The error names the broker, and what to do."""
    ran = ledgerfold("--url", "127.0.0.1:1", "info")
    assert ran.code == 1
    assert "127.0.0.1:1" in ran.err
    assert "ledgerfold serve" in ran.err


@pytest.mark.parametrize(
    ("why", "advice"),
    [
        ("Tls handshake failed (TSI_PROTOCOL_FAILURE)", "Without TLS, give HOST:PORT"),
        ("Tls handshake failed: CERTIFICATE_VERIFY_FAILED", "--tls-trust-certs FILE"),
        ("ipv4:127.0.0.1:7650: Socket closed", "ledgerfold+ssl://HOST:PORT"),
        ("Connection refused", "Is it running?"),
    ],
)
def test_another_port_or_transport(monkeypatch: pytest.MonkeyPatch, why: str, advice: str) -> None:
    """The advice follows gRPC's reason."""
    assert advice in ended_with(monkeypatch, errors.Unavailable(why)).err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["topics"],
        ["read"],
        ["runs", "-n", "-1"],
        ["topics", "set-retention", "t", "-t", "soon", "-s", "1G"],
        ["consume", "t", "-s", "s", "-t", "Sharded"],
        ["serve", "--data", "d", "--ledger-entries", "0"],
        ["serve", "--data", "d", "--emulate", "no_such_field=true"],
        ["read", "t", "--from", "yesterday"],
        ["--url", "http://127.0.0.1:1", "info"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    """For invalid arguments the exit code is 2, with a text on standard error."""
    ran = ledgerfold(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err


def test_the_codes_are_documented() -> None:
    """In the module, each in its row, and in the README."""
    codes = {
        value
        for name, value in vars(exit_codes).items()
        if name.isupper() and isinstance(value, int)
    }
    rows = re.findall(r"^\| (\d+) \|", exit_codes.__doc__ or "", re.MULTILINE)
    assert set(map(int, rows)) == codes == {0, *EXPECTED.values(), 130}
    section = README.partition("## Exit codes")[2].partition("\n## ")[0]
    assert codes <= set(map(int, re.findall(r"\b\d+\b", section)))
