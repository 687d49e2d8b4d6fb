"""Models a run's result with the oracle of the strategy that its plan names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.strategies.catalogue import listed
from ledgerfold.strategies.ready_made import READY_MADE
from ledgerfold.strategies.strategic import TopicCompactionStrategy
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from tests.model.strategic_model import Said, strategic
from tests.model.strategy_model import Message, outcome_of
from tests.support.strategic_classes import Everything

# The last one represents a user-defined strategy.
CLASSES: dict[str, type[TopicCompactionStrategy]] = {
    **READY_MADE,
    "shop:Everything": Everything,
}


class Left(NamedTuple):
    """`rows`: indexes into the messages, ascending."""

    rows: list[int]
    removed_events: int


class Published(Protocol):
    """The facts of a message's entry that a model needs."""

    @property
    def publish_time_ms(self) -> int: ...


def is_strategic(plan: CompactionPlan) -> bool:
    known = listed(plan.strategy)
    return known is None or known.is_strategic


def left_by(plan: CompactionPlan, messages: Sequence[tuple[Published, StoredMessage]]) -> Left:
    if is_strategic(plan):
        said = [_said(header, message, row) for row, (header, message) in enumerate(messages)]
        strategy = CLASSES[plan.strategy](**plan.strategy_settings)
        chosen = strategic(said, strategy)
        return Left(sorted(each.message_id[0] for each in chosen.left), chosen.removed_events)
    outcome = outcome_of(
        plan.strategy,
        plan.strategy_settings,
        [
            Message(
                message.key,
                message.value,
                message.event_time_ms,
                message.batch_index < 0,
                header.publish_time_ms,
            )
            for header, message in messages
        ],
        plan.retain_null_key,
        plan.time_ms,
    )
    return Left(outcome.survivors, outcome.removed_events)


def _said(header: Published, message: StoredMessage, row: int) -> Said:
    """Describes a message by its row instead of its id, which no strategy here uses."""
    return Said(
        None if message.key is None else message.key.decode(),
        message.value,
        message.properties,
        message.event_time_ms,
        header.publish_time_ms,
        (row, -1, -1),
    )
