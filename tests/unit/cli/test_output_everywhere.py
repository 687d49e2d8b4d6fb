"""Every command of the parser: those with output have `-o`, the others print nothing."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.cli.main import make_parser
from tests.support import fake_compactor
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, ledgerfold
from tests.unit.cli.conftest import Ledgerfold

pytestmark = pytest.mark.process

SECRET = {"LEDGERFOLD_COMPACTOR_SECRET": "s"}
T, K = "public/walked/t", "public/walked/k"
# The topic with the first ledger, which its subscription holds.
FIRST = "public/walked/first"
# The arguments of each; {} are paths. None: it needs Spark, or replaces the others' data, and has
# separate tests.
SHOWING: dict[str, str | None] = {
    "produce": f"{T} -k a -m 1",
    "consume": f"{T} -s s -p Earliest",
    "read": f"{T} --until-end",
    "topics list": "public/walked",
    # test_contexts.py and test_doctor.py run them.
    "context list": None,
    "doctor": None,
    "tenants list": "",
    "namespaces list": "public",
    "topics stats": T,
    "topics stats-internal": T,
    "topics get-properties": T,
    "topics get-subscription-properties": f"{T} -s s",
    "topics trim": T,
    "topics terminate": "public/walked/ended",
    "topics last-message-id": T,
    "topics get-message-id": f"{T} -d 0",
    "topics peek-messages": f"{T} -s s -n 2",
    "topics examine-messages": T,
    "topics get-message-by-id": f"{FIRST} -l 1 -e 0",
    "topics subscriptions": T,
    "topics get-partitioned-topic-metadata": "public/walked/p",
    "topics list-partitioned-topics": "public/walked",
    "topics partitioned-stats": "public/walked/p",
    "topics expire-messages": f"{T} -s s -t 1s",
    "topics expire-messages-all-subscriptions": f"{T} -t 1s",
    "topics skip": f"{T} -s s -n 1",
    "topics clear-backlog": f"{T} -s s",
    "schemas upload": "public/walked/s -f {schema}",
    "schemas get": "public/walked/s",
    "schemas versions": "public/walked/s",
    "schemas compatibility": "public/walked/s -f {schema}",
    "schemas delete": "public/walked/none",
    "topics compact": f"{T} --wait",
    "topics compaction-status": T,
    "topics cancel-compaction": T,
    "topics get-config": K,
    "topics roll": K,
    "topics delete-records": f"{K} 0",
    "topics truncate-log": f"{K} 1",
    "topics describe-log": K,
    "compact": T,
    "runs": T,
    "cleaner run": f"--topic {K}",
    "cleaner plan": K,
    "cleaner status": "",
    "cleaner checkpoint": "",
    "cleaner pause": K,
    "cleaner resume": K,
    "cleaner get-config": "",
    "explain": f"{T} --key a",
    "what-if": None,
    "info": "",
    "reset": None,
    "snapshot save": None,
    "snapshot list": "",
    "snapshot restore": None,
    "faults add fail": "publish --error ProducerBusy --topic public/other/t",
    "faults add disconnect": "publish --topic public/other/t",
    "faults add delay": "read 1s --topic public/other/t",
    "faults add lose-receipt": "--topic public/other/t",
    "faults add disk-full": None,
    "faults add fail-compaction": "two --topic public/other/t",
    "faults list": "",
    "faults remove": None,
    "faults clear": "",
    "clock show": "",
    "clock set": "2040-01-01T00:00:00Z",
    "clock advance": "1s",
    "segment dump": "{segment}",
    "verify": "{data}",
    "repair": "{data}",
}
SILENT: dict[str, str] = {
    "topics create": "public/walked/new",
    "topics unload": T,
    "topics truncate": "public/walked/new",
    "topics delete": "public/walked/new",
    "topics update-properties": f"{T} -p owner=sales",
    "topics remove-properties": f"{T} -k owner",
    "topics create-subscription": f"{T} -s other",
    "topics update-subscription-properties": f"{T} -s other -p team=risk",
    "topics reset-cursor": f"{T} -s other -m earliest",
    "topics unsubscribe": f"{T} -s other",
    "topics create-partitioned-topic": "public/walked/parts -p 2",
    "topics update-partitioned-topic": "public/walked/parts -p 3",
    "topics delete-partitioned-topic": "public/walked/parts",
    "topics set-config": f"{K} segment.ms=1000",
    "topics unset-config": f"{K} segment.ms",
    "tenants create": "walked",
    "tenants update": "walked -r r",
    "tenants delete": "walked",
    "namespaces create": "public/walked-too",
    "namespaces delete": "public/walked-too",
    "snapshot delete": "walked",
    "cleaner set-config": "log.cleaner.threads=1",
    "cleaner unset-config": "log.cleaner.threads",
}
# They print progress for people, or run until they are ended.
TELLING = (
    *("serve", "demo git", "demo ticker", "demo addresses", "demo prices", "completion"),
    *("context set", "context use", "context delete"),
    # test_tokens_command.py runs them.
    *(f"tokens {each}" for each in ("create", "validate", "create-key-pair", "create-secret-key")),
)
# Their texts go to standard error.
OF_FILES = (
    *("import", "topics import", "topics export"),
    *(f"export {each}" for each in ("kafka-log", "parquet", "csv", "jsonl")),
)
POLICIES = {
    "compaction-threshold": "-t 100M",
    "retention": "-t 1d -s 1G",
    "compaction-strategy": "event-time",
    "message-ttl": "-t 1d",
    "emulation": "exact_backlog=true",
    "schema-compatibility-strategy": "-c FULL",
    "schema-validation-enforce": "--disable",
    "is-allow-auto-update-schema": "--enable",
    "delayed-delivery": "false",
    "max-unacked-messages-per-consumer": "-m 10",
    "max-unacked-messages-per-subscription": "-m 10",
    "deduplication": "--enable",
}
for scope, name in (("topics", T), ("namespaces", "public/walked")):
    SILENT[f"{scope} grant-permission"] = f"{name} --role r --actions produce"
    SHOWING[f"{scope} permissions"] = name
    SILENT[f"{scope} revoke-permission"] = f"{name} --role r"
for scope, name in (("topics", T), ("topicPolicies", T), ("namespaces", "public/walked")):
    for policy, values in POLICIES.items():
        SILENT[f"{scope} set-{policy}"] = f"{name} {values}"
        SHOWING[f"{scope} get-{policy}"] = name
        SILENT[f"{scope} remove-{policy}"] = name
    SILENT[f"{scope} set-backlog-quota"] = f"{name} -l 1M -p producer_exception"
    SHOWING[f"{scope} get-backlog-quotas"] = name
    SILENT[f"{scope} remove-backlog-quota"] = name


def commands(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Returns all commands that can be run, with their parsers."""
    inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        yield " ".join(path), parser
    for each in inner:
        for name, found in each.choices.items():
            yield from commands(found, (*path, name))


PARSERS = dict(commands(make_parser()))


def formats(parser: argparse.ArgumentParser) -> list[str]:
    found = [each for each in parser._actions if "--output" in each.option_strings]
    return list(found[0].choices or ()) if found else []


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledgerfold]:
    """Walks all commands on a broker with a topic of each kind, a manual clock, and a worker
    without Spark.
    """
    worker = subprocess.Popen(
        [sys.executable, fake_compactor.__file__, "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | SECRET,
    )
    with worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        address = f"127.0.0.1:{json.loads(worker.stdout.readline())['port']}"
        arguments = ("--compactor", address, "--test-clock", "--allow-faults")
        folder = tmp_path_factory.mktemp("walked")
        data, schema = folder / "data", schema_file(folder)
        with BrokerProcess(data, arguments=arguments, environment=SECRET) as broker:

            def cli(*arguments: str, stdin: bytes = b"") -> Ran:
                return ledgerfold("--url", broker.url, *arguments, stdin=stdin)

            for setup in (
                f"produce {FIRST} -k a -m 1",
                f"topics create-subscription {FIRST} -s s -m earliest",
                f"produce {T} -k a -m 1",
                f"topics create-subscription {T} -s s -m earliest",
                "topics create public/walked/ended",
                "topics create-partitioned-topic public/walked/p -p 2",
                f"topics create {K} --cleanup-policy compact,delete",
                f"produce {K} -k a -m 1",
                f"produce {K} -k a -m 2",
                f"schemas upload public/walked/s -f {schema}",
                "snapshot save walked",
            ):
                assert cli(*setup.split()).code == 0, setup
            yield cli
        worker.kill()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A data directory that no broker has open, and a segment in it."""
    data = tmp_path_factory.mktemp("walked-at-rest") / "data"
    with BrokerProcess(data, arguments=("--compactor", "off")) as broker:
        assert ledgerfold("--url", broker.url, "produce", "t", "-m", "1").code == 0
        broker.stop()
    segment = next(data.glob("ledgers/*/*.log"))
    return {"data": data, "segment": segment, "schema": schema_file(data.parent)}


def schema_file(folder: Path) -> Path:
    path = folder / "schema.json"
    path.write_text('{"type": "STRING"}')
    return path


def test_each_command_is_listed_here() -> None:
    """Each new command must state here whether it shows something."""
    assert set(PARSERS) == {*SHOWING, *SILENT, *TELLING, *OF_FILES}
    with_output = {name for name, parser in PARSERS.items() if formats(parser)}
    assert with_output == set(SHOWING)


@pytest.mark.parametrize("name", [name for name, given in SHOWING.items() if given is not None])
def test_commands_with_output_support_each_form(
    name: str, walked: Ledgerfold, paths: dict[str, Path]
) -> None:
    """JSON is JSON, lines of it are objects, and a table is neither."""
    given = (SHOWING[name] or "").format(**paths).split()
    chosen = formats(PARSERS[name])
    assert "json" in chosen
    for form in chosen:
        if T in given:
            # Something to expire, to skip, to compact.
            assert walked("produce", T, "-k", "a", "-m", "1").code == 0
            assert walked("clock", "advance", "10s").code == 0
        if name == "cleaner resume":
            assert walked("cleaner", "pause", K).code == 0
        run = ledgerfold if name in ("segment dump", "verify", "repair") else walked
        ran = run(*name.split(), *given, "-o", form)
        assert ran.code == 0, ran.err
        check(form, ran.out)


def check(form: str, out: str) -> None:
    if form == "json":
        assert isinstance(json.loads(out), dict | list)
    elif form == "jsonl":
        assert all(isinstance(json.loads(line), dict) for line in out.splitlines())
    else:
        assert not out.startswith(("{", "["))


def test_commands_without_output_print_nothing(walked: Ledgerfold) -> None:
    """Each succeeds, one after another, with empty standard output."""
    for name, given in SILENT.items():
        ran = walked(*name.split(), *given.split())
        assert (ran.code, ran.out) == (0, ""), (name, ran.err)
