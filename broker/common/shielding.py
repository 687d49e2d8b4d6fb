"""Work that goes on to its end though its caller goes away.

A call whose client has hung up is cancelled at whatever it waits for. Half of a deletion, an unload
or a flush must not be all that is ever done of it: a thread cannot be called back, and what has
been taken out of memory must get to the disk.

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

Bound: what is on its way is what was asked for; each piece ends by itself.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")
# The loop itself keeps no task alive.
_on_their_way: set[asyncio.Task[Any]] = set()
_log = logging.getLogger(__name__)


async def run_to_completion(work: Coroutine[Any, Any, _T]) -> _T:
    """What `work` gives or raises. A caller that is cancelled does not cancel it."""
    task = asyncio.get_running_loop().create_task(work)
    _on_their_way.add(task)
    task.add_done_callback(_on_their_way.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_tell)
        raise


def runs_to_completion(
    function: Callable[_P, Coroutine[Any, Any, _T]],
) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Decorates a coroutine function: each call goes to its end."""

    @functools.wraps(function)
    async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await run_to_completion(function(*args, **kwargs))

    return call


def _tell(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("What a caller did not wait for failed: %s", error)
