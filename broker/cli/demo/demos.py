"""`demo`: publishes, compacts on Spark, reads the compacted view back, checks it, prints the
figures.

A demonstration uses the broker that --url, --context or LEDGERFOLD_URL names. Without these, it
uses the broker at the default address if one answers, otherwise a temporary one, as with port 0. It
prints its topic's name, and deletes the topic at the end, unless --topic or --keep is given.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from ledgerfold.broker.cli.connecting import credentials_of
from ledgerfold.broker.cli.data.producing import Outgoing
from ledgerfold.broker.cli.demo import examples
from ledgerfold.broker.cli.demo.stage import SHOWN, Stage, differences, verdict
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.output import message_id_text
from ledgerfold.broker.cli.serving import DEFAULT_LISTEN
from ledgerfold.broker.cli.tables import aligned
from ledgerfold.broker.cli.units import POSITIVE
from ledgerfold.broker.cli.verbs import Argument, Verbs, argument, flag
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

COMMANDS = Verbs()
DEMOS = COMMANDS.command(
    "demo",
    "publish, compact and check real or generated data; on a temporary broker if none runs",
    title="demos",
    metavar="DEMO",
)
_CLEANUP_POLICY = argument(
    "--cleanup-policy",
    "use a Kafka topic, cleaned by Kafka's cleaner",
    choices=("compact", "compact,delete"),
)
Demo = Callable[[Stage], int]


def _demo(name: str, help_: str, *arguments: Argument) -> Callable[[Demo], Demo]:
    """Declares the demonstration that the decorated function performs on a stage."""

    def declare(show: Demo) -> Demo:
        DEMOS.verb(
            name,
            help_,
            argument("--topic", "publish to this topic, and keep it; default: a new one"),
            flag("--keep", "do not delete the topic at the end"),
            *arguments,
        )(lambda options: _on_stage(options, name, show))
        return show

    return declare


@contextmanager
def _broker(options: argparse.Namespace) -> Iterator[str]:
    from ledgerfold.broker.demo.own_broker import answers, own_broker

    url_given = getattr(options, "is_url_given", False) or options.url != DEFAULT_LISTEN
    if options.url.endswith(":0"):
        is_used = False
    else:
        is_used = url_given or answers(options.url, **credentials_of(options))
    if is_used:
        # One that is named and does not answer is an error, as for other commands.
        yield options.url
    elif options.keep or options.topic:
        raise InvalidRequest(
            f"No broker answers at {options.url}, and a temporary broker keeps nothing: omit "
            "--keep and --topic, or start a broker with `ledgerfold serve --data DIR`."
        )
    else:
        with own_broker() as url:
            print(f"broker      started at {url} on a temporary directory", flush=True)
            yield url


def _on_stage(options: argparse.Namespace, name: str, show: Demo) -> int:
    topic = options.topic or f"demo-{name}-{secrets.token_hex(4)}"
    with _broker(options) as url:
        print(f"topic       {topic}", flush=True)
        stage = Stage(options, url, topic)
        try:
            return show(stage)
        finally:
            stage.close(deletes_topic=not (options.topic or options.keep))


@_demo(
    "git",
    "the history of a git repository, with paths as keys",
    argument("repository", "default: .", nargs="?", default=".", type=absolute_path),
    _CLEANUP_POLICY,
)
def _git(stage: Stage) -> int:
    from ledgerfold.broker.demo import git_history

    repository = stage.options.repository
    commit = git_history.last_commit(repository)
    if not stage.is_kafka and git_history.is_shallow(repository):
        print(f"{repository} is a shallow clone: its history begins where it was cut off")
    commits: set[str] = set()
    tombstones = 0

    def messages() -> Iterator[Outgoing]:
        nonlocal tombstones
        for change in git_history.changes(repository, commit):
            commits.add(change.commit)
            tombstones += change.value is None
            yield Outgoing(change.path, change.value)

    if stage.is_kafka:
        stage.create_log()
    stage.publish(messages(), batching=True)
    expected: dict[str, object] = dict(git_history.tree(repository, commit))
    tree = f"git ls-tree -r {commit[:12]}, {counted(len(expected), 'path')}"
    if stage.is_kafka:
        stage.roll()
        stage.clean()
        return _check_log(stage, expected, tree)
    print(
        f"history     {counted(len(commits), 'commit')}, {counted(tombstones, 'deletion')}, "
        f"up to {commit[:12]}"
    )
    if stage.compact() != DONE:
        return FAILED
    return _check_view(stage, expected, tree)


def _check_view(stage: Stage, expected: dict[str, object], tree: str) -> int:
    view: dict[str, object] = {}
    rows: list[dict[str, str]] = []
    for message in stage.read(compacted=True):
        path, document = message.partition_key(), json.loads(message.data())
        view[path] = (document["mode"], document["blob"])
        if len(rows) < SHOWN:
            columns = {"id": message_id_text(message.message_id()), "path": path}
            rows.append(columns | {"mode": document["mode"], "commit": document["commit"][:12]})
    stage.print_sizes()
    if rows:
        print(f"\nThe compacted view, first {len(rows)} of {len(view):,}:\n{aligned(rows)}\n")
    return verdict(differences(view, expected), f"the compacted view equals {tree}")


def _check_log(stage: Stage, expected: dict[str, object], tree: str) -> int:
    """Compares a cleaned log, in which tombstones are retained."""
    latest: dict[str, object] = {}
    seen, twice, tombstones = set[str](), list[str](), 0
    for message in stage.read(compacted=False):
        path = message.partition_key()
        twice += [f"{path} is there twice"] if path in seen else []
        seen.add(path)
        if message.is_tombstone():
            tombstones += 1
        else:
            document = json.loads(message.data())
            latest[path] = (document["mode"], document["blob"])
    print(f"stays       {counted(tombstones, 'tombstone')}, for delete.retention.ms")
    return verdict(twice + differences(latest, expected), f"the cleaned log equals {tree}")


@_demo(
    "ticker",
    "a stock ticker, with symbols as keys",
    *(
        argument(option, "default %(default)s", **POSITIVE, default=default)
        for option, default in (("--seed", 1), ("--symbols", 500), ("--messages", 100_000))
    ),
)
def _ticker(stage: Stage) -> int:
    from ledgerfold.broker.demo.examples import quotes

    options = stage.options
    expected: dict[str, object] = {}

    def messages() -> Iterator[Outgoing]:
        for quote in quotes(options.seed, options.symbols, options.messages):
            expected[quote.symbol] = quote.value
            yield Outgoing(*quote)

    stage.publish(messages(), batching=True)
    if stage.compact() != DONE:
        return FAILED
    last = {each.partition_key(): each.data() for each in stage.read(compacted=True)}
    view: dict[str, object] = dict(last)
    stage.print_sizes()
    shown = [{"symbol": key, "last": last[key].decode()} for key in islice(last, SHOWN)]
    print(f"\n{aligned(shown)}\n")
    right = f"the last price of {counted(len(view), 'symbol')}"
    return verdict(differences(view, expected), right)


_demo("addresses", "six addresses of three people", _CLEANUP_POLICY)(examples.addresses)
_demo("prices", "seven prices of three products", _CLEANUP_POLICY)(examples.prices)
