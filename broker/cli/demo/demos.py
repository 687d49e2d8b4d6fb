"""`demo`: publishes, compacts on Spark, reads the compacted view back, checks it, prints the
figures.

A demonstration uses the broker at --url if one answers, else a temporary one. It prints its topic's
name, and deletes the topic at the end, unless --topic or --keep is given.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from ledgerfold.broker.cli.data.producing import Outgoing
from ledgerfold.broker.cli.demo import kafka as kafka_demos
from ledgerfold.broker.cli.demo.stage import SHOWN, Stage, differences, verdict
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.output import message_id_text
from ledgerfold.broker.cli.tables import aligned
from ledgerfold.broker.cli.units import parse_positive
from ledgerfold.storage.errors import InvalidRequest, TopicNotFound
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

Commands = argparse._SubParsersAction


def add_demo(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("demo", help="publish, compact and check real or generated data")
    verbs = parser.add_subparsers(title="demos", metavar="DEMO", required=True)
    git = _demo(verbs, "git", "a git repository's history: path = key", _git)
    git.add_argument("repository", nargs="?", default=".", type=absolute_path, help="default: .")
    ticker = _demo(verbs, "ticker", "a stock ticker: symbol = key", _ticker)
    for option, default in (("--seed", 1), ("--symbols", 500), ("--messages", 100_000)):
        ticker.add_argument(
            option, type=parse_positive, default=default, help="default %(default)s", metavar="N"
        )
    addresses = _demo(verbs, "addresses", "six addresses of three people", _addresses)
    prices = _demo(verbs, "prices", "seven prices of three products", _prices)
    for parser in (git, addresses, prices):
        parser.add_argument(
            "--cleanup-policy",
            choices=("compact", "compact,delete"),
            help="use a Kafka topic, cleaned by Kafka's cleaner",
        )


def _demo(
    verbs: Commands[argparse.ArgumentParser],
    name: str,
    text: str,
    run: Callable[[Stage], int],
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text)
    parser.add_argument("--topic", help="publish to this topic, and keep it; default: a new one")
    parser.add_argument("--keep", action="store_true", help="do not delete the topic at the end")
    parser.set_defaults(run=lambda options: _on_stage(options, name, run))
    return parser


@contextmanager
def _broker(options: argparse.Namespace) -> Iterator[str]:
    from ledgerfold.broker.demo.own_broker import answers, own_broker

    if answers(options.url):
        yield options.url
    elif options.keep:
        raise InvalidRequest(
            f"No broker answers at {options.url}, and a temporary broker keeps nothing: omit "
            "--keep, or start a broker with `ledgerfold serve --data DIR`."
        )
    else:
        with own_broker() as url:
            print(f"broker      started at {url} on a temporary directory", flush=True)
            yield url


def _on_stage(options: argparse.Namespace, name: str, run: Callable[[Stage], int]) -> int:
    topic = options.topic or f"demo-{name}-{secrets.token_hex(4)}"
    with _broker(options) as url:
        print(f"topic       {topic}", flush=True)
        stage = Stage(options, url, topic)
        try:
            return run(stage)
        finally:
            stage.client.close()
            if not (options.topic or options.keep):
                _delete(url, topic)


def _delete(url: str, topic: str) -> None:
    from ledgerfold.broker.client.administration.admin import Admin

    # The topic does not exist if nothing was published.
    with Admin(url) as admin, suppress(TopicNotFound):
        admin.delete_topic(topic, force=True)
        print("deleted     the topic; --keep leaves it there")


def _git(stage: Stage) -> int:
    from ledgerfold.broker.demo import git_history

    if stage.options.cleanup_policy is not None:
        return kafka_demos.git(stage)
    repository = stage.options.repository
    commit = git_history.last_commit(repository)
    if git_history.is_shallow(repository):
        print(f"{repository} is a shallow clone: its history begins where it was cut off")
    commits: set[str] = set()
    tombstones = 0

    def messages() -> Iterator[Outgoing]:
        nonlocal tombstones
        for change in git_history.changes(repository, commit):
            commits.add(change.commit)
            tombstones += change.value is None
            yield Outgoing(change.path, change.value)

    stage.publish(messages(), batching=True)
    print(
        f"history     {counted(len(commits), 'commit')}, {counted(tombstones, 'deletion')}, "
        f"up to {commit[:12]}"
    )
    if stage.compact() != DONE:
        return FAILED
    found: dict[str, object] = {}
    rows: list[dict[str, str]] = []
    for message in stage.read(compacted=True):
        document = json.loads(message.data())
        found[message.partition_key()] = (document["mode"], document["blob"])
        if len(rows) < SHOWN:
            place = {"id": message_id_text(message.message_id()), "path": message.partition_key()}
            rows.append(place | {"mode": document["mode"], "commit": document["commit"][:12]})
    stage.print_sizes()
    if rows:
        print(f"\nThe compacted view, first {len(rows)} of {len(found):,}:\n{aligned(rows)}\n")
    expected: dict[str, object] = dict(git_history.tree(repository, commit))
    return verdict(
        differences(found, expected),
        f"the compacted view equals git ls-tree -r {commit[:12]}, {counted(len(found), 'path')}",
    )


def _ticker(stage: Stage) -> int:
    from ledgerfold.broker.demo.ticker import quotes

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
    found: dict[str, object] = dict(last)
    stage.print_sizes()
    shown = [{"symbol": key, "last": last[key].decode()} for key in islice(last, SHOWN)]
    print(f"\n{aligned(shown)}\n")
    right = f"the last price of {counted(len(found), 'symbol')}"
    return verdict(differences(found, expected), right)


def _example(stage: Stage, pairs: tuple[tuple[str, str], ...]) -> int:
    from ledgerfold.broker.demo.examples import compacted

    ids = stage.publish((Outgoing(key, value.encode()) for key, value in pairs), batching=False)
    if stage.compact() != DONE:
        return FAILED
    for title, is_compacted in (("before", False), ("after", True)):
        rows = [
            {
                "id": message_id_text(message.message_id()),
                "key": message.partition_key(),
                "value": message.data().decode(),
            }
            for message in stage.read(compacted=is_compacted)
        ]
        print(f"\n{title}\n{aligned(rows)}")
    found = [(row["id"], row["key"], row["value"]) for row in rows]
    expected = [(message_id_text(ids[place]), key, value) for place, key, value in compacted(pairs)]
    print()
    wrong = [] if found == expected else [f"{found} instead of {expected}"]
    return verdict(wrong, "of each key the last message, in order, under its own id")


def _addresses(stage: Stage) -> int:
    from ledgerfold.broker.demo.examples import ADDRESSES

    if stage.options.cleanup_policy is not None:
        return kafka_demos.addresses(stage)
    return _example(stage, ADDRESSES)


def _prices(stage: Stage) -> int:
    from ledgerfold.broker.demo.examples import PRICES

    if stage.options.cleanup_policy is not None:
        return kafka_demos.prices(stage)
    return _example(stage, PRICES)
