"""Settings by Kafka's names: of a topic, of a broker that runs, and of one that starts.

ledgerfold topics create orders --cleanup-policy compact --config segment.ms=60000
ledgerfold topics set-config orders min.cleanable.dirty.ratio=0.1
ledgerfold cleaner set-config log.cleaner.threads=2
ledgerfold serve --data DIR --kafka-config server.properties --kafka-config log.roll.hours=1

What is refused is refused in Kafka's words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.output import add_output, print_rows
from ledgerfold.broker.cli.properties import read_properties
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.words import counted

Commands = argparse._SubParsersAction
_POLICY = "cleanup.policy"


def add_creation_options(parser: argparse.ArgumentParser) -> None:
    """Of `topics create` and its partitioned sister."""
    parser.add_argument(
        "--cleanup-policy",
        metavar="compact|delete|compact,delete",
        help="a Kafka topic: its log is a Kafka partition's (docs/KAFKA.md)",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Kafka topic's setting, by Kafka's name; may be repeated",
    )


def created_with(options: argparse.Namespace) -> dict[str, str] | None:
    """The settings of the Kafka topic that is asked for; None: a Pulsar topic is."""
    config = parse_pairs(options.config)
    if options.cleanup_policy is None and not config:
        return None
    if (options.cleanup_policy is None) == (_POLICY not in config):
        raise InvalidRequest(
            "A Kafka topic has one cleanup policy: --cleanup-policy compact, delete or "
            "compact,delete."
        )
    return config if options.cleanup_policy is None else {_POLICY: options.cleanup_policy, **config}


def add_topic_config_verbs(verbs: Commands[argparse.ArgumentParser]) -> None:
    _add_verbs(verbs, "a Kafka topic's settings", of_topic=True)


def add_broker_config_verbs(verbs: Commands[argparse.ArgumentParser]) -> None:
    _add_verbs(verbs, "the broker's settings for Kafka topics", of_topic=False)


def _add_verbs(verbs: Commands[argparse.ArgumentParser], what: str, *, of_topic: bool) -> None:
    change = verbs.add_parser("set-config", help=f"change {what}, all or none")
    get = verbs.add_parser("get-config", help=what)
    unset = verbs.add_parser("unset-config", help=f"take {what} back")
    for verb in (change, get, unset):
        if of_topic:
            add_name(verb)
        else:
            verb.set_defaults(topic="")
    change.add_argument("pairs", nargs="+", metavar="NAME=VALUE", help="by Kafka's names")
    change.set_defaults(run=_set)
    get.add_argument("name", nargs="?", metavar="NAME", help="this one's value alone")
    which = get.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="with what each of them means")
    which.add_argument("--set", action="store_true", help="only those that were set on it")
    add_output(get, ("table", "json", "jsonl"))
    get.set_defaults(run=_get)
    unset.add_argument("names", nargs="+", metavar="NAME", help="inherited from now on")
    unset.set_defaults(run=_unset)


def _set(options: argparse.Namespace) -> None:
    values = parse_pairs(options.pairs)
    if not options.topic:
        _check_known(values)
    admin_of(options).kafka.change_config(options.topic, values=values)


def _unset(options: argparse.Namespace) -> None:
    admin_of(options).kafka.change_config(options.topic, unset=options.names)


def _get(options: argparse.Namespace) -> None:
    config = admin_of(options).kafka.config(options.topic)
    if options.name is not None:
        if options.name not in config:
            of = "topic" if options.topic else "broker"
            raise InvalidRequest(f"Kafka has no setting {options.name} of a {of}'s logs.")
        if options.output is None:
            print(config[options.name].value)
            return
        config = {options.name: config[options.name]}
    own = "topic" if options.topic else "broker"
    print_rows(
        options,
        (
            {"name": each.name, "value": each.value, "unit": each.unit, "source": each.source}
            | ({"meaning": each.doc} if options.all else {})
            for each in config.values()
            if each.source == own or not options.set
        ),
    )


def add_serve_options(add_to: argparse._ActionsContainer) -> None:
    add_to.add_argument(
        "--kafka-config",
        action="append",
        default=[],
        metavar="FILE|NAME=VALUE",
        help="what holds for Kafka topics: a broker's server.properties, or one of its settings; "
        "may be repeated, the last one counts",
    )


def serve_config(options: argparse.Namespace) -> dict[str, str]:
    """Of `serve`: names that are about logs. Raises InvalidRequest, KafkaError, OSError."""
    found: dict[str, str] = {}
    for text in options.kafka_config:
        if "=" in text and not Path(text).is_file():
            pairs = parse_pairs([text])
            _check_known(pairs)
            found |= pairs
        else:
            found |= _of_file(absolute_path(text))
    if found:
        from ledgerfold.broker.kafka.config import BrokerConfig

        BrokerConfig.of(found)
    return found


def _of_file(path: Path) -> dict[str, str]:
    # As Java reads such a file.
    pairs = read_properties(path.read_text("latin-1"))
    others = set(_others(pairs))
    if others:
        what = counted(len(others), "setting")
        # Where these are mistyped, who wrote them should hear of it.
        named = ", ".join(sorted(name for name in others if name.startswith("log.")))
        ignored = f"ignored, {named} among them" if named else "ignored"
        print(f"{path}: {what} not about logs, {ignored}", file=sys.stderr)
    return {name: text for name, text in pairs.items() if name not in others}


def _check_known(pairs: Mapping[str, str]) -> None:
    """A file has much in it that is not about logs; who names one setting means it."""
    for name in _others(pairs):
        raise InvalidRequest(f"Kafka has no setting {name} of a broker's logs.")


def _others(pairs: Mapping[str, str]) -> list[str]:
    from ledgerfold.broker.kafka.broker_settings import BROKER_SETTINGS

    return [name for name in pairs if name not in BROKER_SETTINGS]


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Raises InvalidRequest.

    >>> parse_pairs(["cleanup.policy=compact,delete", "segment.ms=5"])
    {'cleanup.policy': 'compact,delete', 'segment.ms': '5'}
    """
    found = dict[str, str]()
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not (name and separator):
            raise InvalidRequest(f"{pair!r}: write NAME=VALUE, like segment.ms=60000.")
        if name in found:
            raise InvalidRequest(f"{name} is set twice.")
        found[name] = value
    return found
