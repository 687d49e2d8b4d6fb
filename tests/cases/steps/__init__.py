"""The steps of the notation, by what they are about.

publishing.py, reading.py, consuming.py   messages in, messages out
compacting.py                             runs and their status
topics.py                                 a topic's life, policies, time, the broker's life
looking.py                                stats by their field paths
views.py                                  table views
"""

from __future__ import annotations

from tests.cases.steps import compacting, consuming, looking, publishing, reading, topics, views
from tests.cases.steps.looking import LOOK, PATHS
from tests.cases.verbs import VERBS

# A broker that is restarted or killed, or stopped for a run without it, is nobody else's.
OWN_BROKER_VERBS = frozenset({"restart", "kill", "compact-outside"})

__all__ = [
    "LOOK",
    "OWN_BROKER_VERBS",
    "PATHS",
    "VERBS",
    "compacting",
    "consuming",
    "looking",
    "publishing",
    "reading",
    "topics",
    "views",
]
