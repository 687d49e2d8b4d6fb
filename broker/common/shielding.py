"""Coroutines that run to completion even if their caller is cancelled; others that end together.

A call whose client has disconnected is cancelled at its current await. A deletion, an unload or a
flush must not stop halfway: a thread cannot be interrupted, and state removed from memory must
reach the disk.

  >>> async def unload() -> None:
  ...     await asyncio.sleep(0)
  ...     print("unloaded")
  >>> async def example() -> None:
  ...     caller = asyncio.create_task(run_to_completion(unload()))
  ...     await asyncio.sleep(0)
  ...     caller.cancel()
  ...     await asyncio.wait([caller])
  ...     await asyncio.sleep(0)
  >>> asyncio.run(example())
  unloaded

Bound: one task per call in progress; each ends without intervention.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")
# The event loop holds only weak references to tasks.
_in_progress: set[asyncio.Task[Any]] = set()
_log = logging.getLogger(__name__)


async def run_to_completion(work: Coroutine[Any, Any, _T]) -> _T:
    """Runs `work` and returns or raises its result.

    Cancelling the caller does not cancel `work`.
    """
    task = asyncio.get_running_loop().create_task(work)
    _in_progress.add(task)
    task.add_done_callback(_in_progress.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_error)
        raise


def runs_to_completion(
    function: Callable[_P, Coroutine[Any, Any, _T]],
) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Decorates a coroutine function so that each call runs to completion."""

    @functools.wraps(function)
    async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await run_to_completion(function(*args, **kwargs))

    return call


async def first_of(*waits: Awaitable[object], timeout_s: float | None = None) -> None:
    """Returns when one has ended, or after the timeout. Cancels the others. Raises its error."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Even if the caller is cancelled, none may keep waiting.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def _log_error(task: asyncio.Task[Any]) -> None:
    """Logs the error of work whose caller was cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("Work failed after its caller was cancelled: %s", error)
