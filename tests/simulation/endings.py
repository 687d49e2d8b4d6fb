"""Episodes that end some scenarios: combinations that rarely occur by chance."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.moments import is_being_written, is_called, is_written

# As in drawing.py: operations, the pauses after them, and the moments for which they wait.
Episode = tuple[tuple[str, int] | tuple[str, int, str], ...]
# A reader is before deletions that a run omits, while their ledger is trimmed.
LAGGING: Episode = (
    ("publish", 80),
    ("publish", 150),
    ("stand_at_end", 150),
    ("delete_seen", 150),
    ("compact", 400),
    ("trim", 150),
    ("permit", 40),
    ("check", 40),
)
# A trim of ledgers is requested while cursors that have just passed them are being written.
PASSING: Episode = (
    ("open_consumer", 60),
    ("publish", 80),
    ("publish", 150),
    ("compact", 400),
    ("permit_consumer", 60),
    ("trim", 0, is_being_written("cursor")),
    ("clear_all", 1),
    ("trim", 0),
    ("trim", 1),
    ("trim", 100),
    ("seek_subscription", 5),
    ("trim", 100),
)
# The power fails directly after a trim.
TRIMMED: Episode = (
    ("publish", 80),
    ("publish", 150),
    ("compact", 400),
    ("go_dark", 0, is_written("trim")),
    ("publish", 80),
    ("compact", 250),
    ("trim", 100),
)
# The power fails in the middle of a group; or the broker dies there, and the power fails later.
TORN: Episode = (
    ("publish", 80),
    ("go_dark", 0, is_called("sync")),
    ("publish", 60),
    ("publish", 150),
)
RECOVERED: Episode = (
    ("publish", 80),
    ("die", 0, is_called("sync")),
    ("publish", 60),
    ("publish", 150),
    ("go_dark", 150),
    ("publish", 100),
)
# Acknowledgements leave gaps; messages are skipped over them, and requested again.
SKIPPING: Episode = (
    ("open_consumer", 60),
    ("publish", 80),
    ("publish", 150),
    ("permit_consumer", 40),
    ("permit_consumer", 60),
    ("acknowledge", 30),
    ("acknowledge", 60),
    ("pass_over", 40),
    ("pass_over", 60),
    ("unload", 150),
    ("seek_subscription", 60),
    ("pass_over", 60),
    ("acknowledge", 60),
    ("seek_subscription", 60),
)
# Readers at the end of a topic that is terminated.
ENDING: Episode = (
    ("open_reader", 60),
    ("publish", 60),
    ("publish", 150),
    ("permit", 40),
    ("permit", 60),
    ("publish", 5),
    ("terminate", 100),
    ("seek_reader", 60),
)
# One of these ends every n-th scenario of a kind, regardless of its other operations.
LAST: Mapping[str, tuple[Episode, ...]] = {
    "faults": (LAGGING, PASSING, TRIMMED, TORN, RECOVERED, SKIPPING),
    "partitions": (ENDING, SKIPPING),
}
LAST_EVERY = 3
