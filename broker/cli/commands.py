"""The commands, by the module that declares them.

A run does not import the modules of other commands. They would take 20 ms of each run, and 2 MB of
a broker for as long as it runs.

    >>> [table] = tables_of(["serve", "--data", "d"])
    >>> table.names
    ['serve']
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence

from ledgerfold.broker.cli.verbs import Verbs

# The order is that of the help.
NAMES = {
    "ledgerfold.broker.cli.serving:COMMANDS": ["serve"],
    "ledgerfold.broker.cli.data.producing:COMMANDS": ["produce"],
    "ledgerfold.broker.cli.data.consuming:COMMANDS": ["consume", "read"],
    "ledgerfold.broker.cli.topics.topics:COMMANDS": [
        "topics",
        "tenants",
        "namespaces",
        "topicPolicies",
    ],
    "ledgerfold.broker.cli.topics.schemas:COMMANDS": ["schemas"],
    "ledgerfold.broker.cli.topics.compacting:COMMANDS": ["compact"],
    "ledgerfold.broker.cli.topics.compaction:COMMANDS": ["runs"],
    "ledgerfold.broker.cli.kafka.cleaner:COMMANDS": ["cleaner"],
    "ledgerfold.broker.cli.topics.explaining:COMMANDS": ["explain"],
    "ledgerfold.broker.cli.what_if.command:COMMANDS": ["what-if"],
    "ledgerfold.broker.cli.inspecting:BROKER": ["info", "clock"],
    "ledgerfold.broker.cli.state:COMMANDS": ["reset", "snapshot"],
    "ledgerfold.broker.cli.tokens:COMMANDS": ["tokens"],
    "ledgerfold.broker.cli.contexts:COMMANDS": ["context"],
    "ledgerfold.broker.cli.completion:COMMANDS": ["completion"],
    "ledgerfold.broker.cli.doctor:COMMANDS": ["doctor"],
    "ledgerfold.broker.cli.faults:COMMANDS": ["faults"],
    "ledgerfold.broker.cli.data.importing:COMMANDS": ["import"],
    "ledgerfold.broker.cli.data.export_rows:COMMANDS": ["export"],
    "ledgerfold.broker.cli.inspecting:FILES": ["segment"],
    "ledgerfold.broker.cli.data.damage:COMMANDS": ["verify", "repair"],
    "ledgerfold.broker.cli.demo.demos:COMMANDS": ["demo"],
}


def tables_of(arguments: Sequence[str]) -> Iterable[Verbs]:
    """Yields the table that declares the first argument.

    Yields all tables if the first argument is no command: the help, an option before the command,
    or a typing error, whose message suggests commands.
    """
    first = arguments[0] if arguments else None
    own = [table for table, names in NAMES.items() if first in names]
    for table in own or NAMES:
        yield pkgutil.resolve_name(table)
