"""The verbs about properties of topics and subscriptions, with pulsar-admin's options.

ledgerfold topics update-properties orders -p owner=sales -p level=gold
ledgerfold topics update-subscription-properties orders -s audit -p team=risk
"""

from __future__ import annotations

import argparse

from ledgerfold.broker.cli.connecting import TOPIC, admin_of
from ledgerfold.broker.cli.output import ANSWER, print_object
from ledgerfold.broker.cli.units import parse_pairs
from ledgerfold.broker.cli.verbs import Verbs, argument, flag, one_of, repeated
from ledgerfold.storage.errors import InvalidRequest

_SUBSCRIPTION = argument("-s --subscription", "the subscription's name", required=True)
_WRONG = "{!r} is not a property: expected NAME=VALUE."
_TWICE = "The property {!r} is given twice."
# An option of verbs that create a topic, and of those that change properties.
METADATA = repeated("-m --metadata NAME=VALUE", "a property of the topic; may be repeated")
PROPERTIES = repeated("-p --property NAME=VALUE", "a property; may be repeated")
VERBS = Verbs()


def properties_of(pairs: list[str]) -> dict[str, str]:
    """Returns the properties that options name. Raises InvalidRequest."""
    return parse_pairs(pairs, _WRONG, _TWICE)


@VERBS.verb("get-properties", "show the properties of a topic", TOPIC, ANSWER)
def _get(options: argparse.Namespace) -> None:
    print_object(options, admin_of(options).topic_properties(options.topic))


@VERBS.verb("update-properties", "add or replace properties of a topic", TOPIC, PROPERTIES)
def _update(options: argparse.Namespace) -> None:
    properties = properties_of(options.property)
    if not properties:
        raise InvalidRequest("Name the properties to set: -p NAME=VALUE.")
    admin_of(options).update_topic_properties(options.topic, properties)


@VERBS.verb("remove-properties", "remove a property of a topic", TOPIC)
@argument("-k --key", "the property's name", required=True)
def _remove(options: argparse.Namespace) -> None:
    admin_of(options).update_topic_properties(options.topic, remove=[options.key])


@VERBS.verb(
    "get-subscription-properties",
    "show the properties of a subscription",
    *(TOPIC, _SUBSCRIPTION, ANSWER),
)
def _get_of_subscription(options: argparse.Namespace) -> None:
    properties = admin_of(options).subscription_properties(options.topic, options.subscription)
    print_object(options, properties)


@VERBS.verb(
    "update-subscription-properties",
    "replace the properties of a subscription",
    *(TOPIC, _SUBSCRIPTION),
)
@one_of(PROPERTIES, flag("-c --clear", "remove all properties"), required=True)
def _update_of_subscription(options: argparse.Namespace) -> None:
    properties = properties_of(options.property)
    admin = admin_of(options)
    admin.update_subscription_properties(options.topic, options.subscription, properties)
