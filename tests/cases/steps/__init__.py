"""The steps of the notation, by subject.

publishing.py, reading.py, consuming.py   messages in, messages out
compacting.py                             runs and their status
topics.py                                 a topic's life, policies, time, the broker's life
looking.py                                stats by their field paths
views.py                                  table views
kafka.py, cleaning.py                     Kafka topics, and their cleaner
"""

from __future__ import annotations

from tests.cases.steps import (
    cleaning,
    compacting,
    consuming,
    kafka,
    looking,
    publishing,
    reading,
    topics,
    views,
)
from tests.cases.steps.looking import LOOK, PATHS
from tests.cases.verbs import VERBS

# A broker that is restarted or killed, or stopped for a run without it, is not shared.
OWN_BROKER_VERBS = frozenset({"restart", "kill", "compact-outside"})
# Steps whose broker has Kafka topics, a manual clock, and a cleaner that runs on request.
KAFKA_VERBS = frozenset(
    name
    for name, verb in VERBS.items()
    if verb.action.__module__ in (kafka.__name__, cleaning.__name__)
)

__all__ = [
    "KAFKA_VERBS",
    "LOOK",
    "OWN_BROKER_VERBS",
    "PATHS",
    "VERBS",
    "cleaning",
    "compacting",
    "consuming",
    "kafka",
    "looking",
    "publishing",
    "reading",
    "topics",
    "views",
]
