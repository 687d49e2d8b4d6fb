"""Trials of user-defined strategies in a separate process, before they are used.

A trial precedes a policy change, and each run. The worker must be allowed to load the strategy
(ledgerfold/strategies/allowed.py); then the trial loads its code, asks it about samples
(samples.py), and reports its version. The worker itself never imports such code: an import that
hangs, takes all memory or ends its process ends the trial, and the worker continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Any

from ledgerfold.compactor.strategies.watch import ENVIRONMENT, Limits
from ledgerfold.compactor.user_strategies.own import Own
from ledgerfold.storage.errors import InvalidStrategy
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.strategies.catalogue import check_own_name

# The limit for a trial, regardless of the limit of a run: an administrator waits for it.
TRIAL_SECONDS = 12.0
# Additional time for the process to start and to end.
_PROCESS_SECONDS = 10.0
# An answer is one line with at most a few hundred sentences.
_ANSWER_BYTES_MAX = 4 * 1024 * 1024
# The number of processes at a time; further trials wait.
TRIALS_AT_ONCE = 2


class Trials:
    """The trials of a worker, the only way to load a strategy. `limits`: those of a run."""

    def __init__(self, limits: Limits, allowed: AllowedStrategies) -> None:
        self._limits, self._allowed = limits, allowed
        self._places = asyncio.Semaphore(TRIALS_AT_ONCE)

    async def of(self, name: str, settings: Mapping[str, str]) -> Own:
        """Tries a strategy.

        Raises InvalidRequest if it is not a valid name; InvalidStrategy; StrategyNotAllowed, before
        anything is imported.
        """
        description = await self._run_trial(name, settings)
        if "why" in description:
            raise InvalidStrategy(name, str(description["why"]))
        return Own(
            name=name,
            settings=tuple(sorted(settings.items())),
            version=description["version"],
            source=description["source"],
            kind=description["kind"],
            reads=tuple(description.get("reads", ())),
            reads_event_times=description.get("reads_event_times", False),
            limits=self._limits,
        )

    async def choices(
        self, name: str, settings: Mapping[str, str], messages: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Returns the strategy's explanations for messages of a key (samples.py), or in `why` the
        reason for none.

        Raises as `of` does, except InvalidStrategy.
        """
        return await self._run_trial(name, settings, {"messages": messages})

    async def _run_trial(
        self, name: str, settings: Mapping[str, str], more: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        check_own_name(name)
        await asyncio.to_thread(self._allowed.check, name)
        async with self._places:
            return await self._run(name, settings, more or {})

    async def _run(
        self, name: str, settings: Mapping[str, str], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        seconds = min(self._limits.timeout_seconds, TRIAL_SECONDS)
        requested = {
            **more,
            "name": name,
            "settings": dict(settings),
            "timeout_seconds": seconds,
            "memory_bytes": self._limits.memory_bytes,
        }
        command = (sys.executable, "-m", "ledgerfold.compactor.user_strategies.sandbox_process")
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            limit=_ANSWER_BYTES_MAX,
            start_new_session=True,
            env={**os.environ, **ENVIRONMENT},
        )
        try:
            async with asyncio.timeout(seconds + _PROCESS_SECONDS):
                answer = await _response(process, json.dumps(requested))
        except TimeoutError:
            return {"why": f"its trial took longer than {seconds:g} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if answer:
            result: dict[str, Any] = json.loads(answer)
            return result
        return {"why": f"the process that tried it ended ({_end_of(process)})"}


async def _response(process: Process, line: str) -> bytes:
    """Sends a line; returns the answer, empty if the process ends without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(line.encode() + b"\n")
        await process.stdin.drain()
    return await process.stdout.readline()


def _end_of(process: Process) -> str:
    code = process.returncode
    assert code is not None
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
