"""Notifies callers of the results of their sends."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future as ThreadFuture

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.options import Result, result_of
from ledgerfold.broker.client.streams.publish_stream import Outcome
from ledgerfold.storage.errors import LedgerfoldError

_log = logging.getLogger(__name__)


def notify_listeners(outcome: Outcome, partition: int) -> None:
    """Notifies each listener of an entry of its message's result."""
    entry, position, error = outcome
    listeners = entry.listeners
    if listeners.count(None) == len(listeners):
        return
    result = Result.Ok if error is None else result_of(error)
    is_stored_before = position.ledger_id < 0
    message_id = MessageId() if error is None else None
    for index, listener in enumerate(listeners):
        if listener is None:
            continue
        if error is None and not is_stored_before:
            message_id = entry.message_id(partition, position, index)
        if not callable(listener):
            _settle(listener, message_id, error)
            continue
        try:
            listener(result, message_id)
        except Exception:  # user code: its failure must not affect other messages
            _log.exception("A send callback failed.")


def _settle(
    future: ThreadFuture[MessageId] | asyncio.Future[MessageId],
    message_id: MessageId | None,
    error: LedgerfoldError | None,
) -> None:
    if future.done():
        return  # the caller has cancelled it
    if error is not None:
        future.set_exception(error)
    elif message_id is not None:
        future.set_result(message_id)
