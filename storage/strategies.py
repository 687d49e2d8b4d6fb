"""The strategies of compaction that a broker may ask a worker for, by name.

How each chooses is the compactor's (compactor/strategies/), which the broker never imports, and
which may be of another build when it was started by hand: so a plan says the version, too. A
version rises when what the strategy keeps or counts changes: an explanation tells the rules of this
one (broker/explain/rules.py).
"""

from __future__ import annotations

VERSIONS = {"latest": 1}
# What every topic is compacted by.
DEFAULT = "latest"
