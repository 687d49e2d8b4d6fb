"""The supervisor, with a worker process that is real but has no Spark (tests/support)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.worker.health import SupervisorLimits, pause_after_ms
from ledgerfold.broker.worker.process import WorkerProcess, worker_command
from ledgerfold.broker.worker.remains import processes
from ledgerfold.broker.worker.supervisor import (
    SECRET_VARIABLE,
    WARMING_UP,
    CompactorSupervisor,
)
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactorUnavailable,
    Corruption,
    InvalidStrategy,
)
from ledgerfold.v1.admin_pb2 import (
    COMPACTOR_STATE_DISABLED,
    COMPACTOR_STATE_READY,
    COMPACTOR_STATE_RESTARTING,
    COMPACTOR_STATE_STARTING,
    COMPACTOR_STATE_UNAVAILABLE,
    CompactionProgress,
)
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import CompactionStrategy
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.process

FAKE = str(Path(__file__).parents[2] / "support" / "fake_compactor.py")
LIMITS = SupervisorLimits(ready=WAIT_S, listening=WAIT_S, warm=WAIT_S, cancel=5, stop=5)


class Pauses:
    """A stand-in for asyncio.sleep: records each pause, and ends it when the test says so."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began: asyncio.Queue[float] = asyncio.Queue()
        self._over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self._began.put_nowait(seconds)
        await self._over.wait()
        self._over.clear()

    async def next(self) -> float:
        return await asyncio.wait_for(self._began.get(), WAIT_S)

    def end(self) -> None:
        self._over.set()


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@asynccontextmanager
async def supervised(
    data_dir: Path,
    *arguments: str,
    pauses: Pauses | None = None,
    clock: Clock | None = None,
    limits: SupervisorLimits = LIMITS,
    compactor: str = "local",
) -> AsyncIterator[CompactorSupervisor]:
    supervisor = CompactorSupervisor(
        BrokerSettings(data_dir=data_dir, compactor=compactor),
        clock or Clock(),
        command=[sys.executable, FAKE, *arguments],
        sleep=pauses or Pauses(),
        limits=limits,
    )
    supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.stop()


def plan(strategy: str = "publishing-order") -> CompactionPlan:
    return CompactionPlan(run_id=f"t#{strategy}", strategy=strategy, ledger_id=7)


def ignore(progress: CompactionProgress) -> None:
    pass


def in_a_run(
    tmp_path: Path, strategy: str, body: Callable[[asyncio.Task[Manifest]], Awaitable[None]]
) -> None:
    """`body` gets the task of a run that has reported progress."""

    async def main() -> None:
        async with supervised(tmp_path, "serve") as supervisor:
            reported = asyncio.Event()
            run = asyncio.create_task(supervisor.run(plan(strategy), lambda _: reported.set()))
            async with asyncio.timeout(WAIT_S):
                await reported.wait()
                await body(run)

    asyncio.run(main())


def test_the_supervisor_starts_a_worker_and_runs_a_plan(tmp_path: Path) -> None:
    """Start returns before the worker is ready; the run waits for it, and gets its progress."""

    async def body() -> None:
        async with supervised(tmp_path, "serve") as supervisor:
            assert supervisor.state == COMPACTOR_STATE_STARTING
            heard: list[CompactionProgress] = []
            manifest = await supervisor.run(plan(), heard.append)
            assert (manifest.run_id, manifest.ledger_id) == ("t#publishing-order", 7)
            assert [each.tasks_total for each in heard] == [2]
            assert supervisor.state == COMPACTOR_STATE_READY
            assert supervisor.pid > 0
            process = supervisor.pid
        assert supervisor.state == COMPACTOR_STATE_DISABLED
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)

    asyncio.run(body())
    log = tmp_path / "compactor" / "worker.log"
    assert log.read_text() == "a line for the log\n"
    assert list((tmp_path / "compactor" / "work").iterdir()) == []


def test_the_remains_of_an_earlier_worker_are_cleared(tmp_path: Path) -> None:
    """Its working directory and its log are emptied."""
    left = tmp_path / "compactor" / "work" / "blockmgr"
    left.mkdir(parents=True)
    (tmp_path / "compactor" / "worker.log").write_text("old\n")

    async def body() -> None:
        async with supervised(tmp_path, "serve") as supervisor:
            await supervisor.wait_ready()
            assert not left.exists()

    asyncio.run(body())
    assert "old" not in (tmp_path / "compactor" / "worker.log").read_text()


def test_a_worker_is_ready_when_it_serves(tmp_path: Path) -> None:
    """A run whose wait times out names what it waited for."""

    async def body() -> None:
        warm = tmp_path / "warm"
        os.mkfifo(warm)
        limits = SupervisorLimits(ready=0.2)
        async with supervised(tmp_path, "serve-later", str(warm), limits=limits) as supervisor:
            with pytest.raises(CompactorUnavailable, match=r"not ready within 0\.2 s"):
                await supervisor.run(plan(), ignore)
            await asyncio.to_thread(warm.write_bytes, b"warm")
            while supervisor.state != COMPACTOR_STATE_READY:
                with contextlib.suppress(CompactorUnavailable):
                    await supervisor.wait_ready()
            await supervisor.run(plan(), ignore)

    asyncio.run(body())


def test_a_worker_that_dies_during_a_run_fails_the_run(tmp_path: Path) -> None:
    """The run fails with the phase and the signal, and the next worker takes the next run."""

    async def body() -> None:
        pauses = Pauses()
        async with supervised(tmp_path, "serve", pauses=pauses) as supervisor:
            with pytest.raises(
                CompactionFailed, match=r"at phase two: the worker died \(signal SIGKILL\)"
            ):
                await supervisor.run(
                    plan("stubborn"), lambda progress: os.kill(supervisor.pid, signal.SIGKILL)
                )
            assert await pauses.next() == 0.5
            assert supervisor.state == COMPACTOR_STATE_RESTARTING
            assert "SIGKILL" in supervisor.message
            pauses.end()
            assert (await supervisor.run(plan(), ignore)).ledger_id == 7

    asyncio.run(body())


def test_a_worker_that_ends_is_not_ready(tmp_path: Path) -> None:
    """For example, its JVM ended; the run's error says so, and the state changes at once."""

    async def body() -> None:
        pauses, fifo = Pauses(), tmp_path / "ends"
        os.mkfifo(fifo)
        async with supervised(tmp_path, "serve", pauses=pauses) as supervisor:
            asked = plan("orphaned")
            asked.ledgers_dir = str(fifo)
            run = asyncio.create_task(supervisor.run(asked, ignore))
            await supervisor.wait_ready()
            async with asyncio.timeout(WAIT_S):
                while supervisor.state == COMPACTOR_STATE_READY:
                    await supervisor._changed.wait()
            assert (supervisor.state, run.done()) == (COMPACTOR_STATE_RESTARTING, False)
            assert "stopped serving" in supervisor.message
            await asyncio.to_thread(fifo.write_bytes, b"now")
            with pytest.raises(CompactionFailed, match="its JVM ended"):
                await run
            await asyncio.to_thread(fifo.write_bytes, b"end")
            assert await pauses.next() == 0.5
            pauses.end()
            await supervisor.wait_ready()

    asyncio.run(body())


@pytest.mark.parametrize("strategy", ["ending", "dying"])
def test_a_run_triggered_as_the_worker_ends_uses_the_next_worker(
    tmp_path: Path, strategy: str
) -> None:
    """The run had not begun: a trigger right after a run that failed with its JVM succeeds."""

    async def body() -> None:
        pauses = Pauses()
        async with supervised(tmp_path, "serve", pauses=pauses) as supervisor:
            asked = plan(strategy)
            asked.ledgers_dir = str(tmp_path / "asked")
            run = asyncio.create_task(supervisor.run(asked, ignore))
            assert await pauses.next() == 0.5
            pauses.end()
            assert (await run).ledger_id == 7

    asyncio.run(body())


def test_restarts_back_off_until_a_worker_is_healthy_for_a_minute(tmp_path: Path) -> None:
    """0.5 s, 1 s, 2 s while it keeps dying; 0.5 s again once it was well for a minute."""

    async def body() -> None:
        pauses, clock = Pauses(), Clock()
        async with supervised(tmp_path, "serve", pauses=pauses, clock=clock) as supervisor:
            for healthy_ms, pause in [(0, 0.5), (1000, 1), (1000, 2), (60_000, 0.5)]:
                await supervisor.wait_ready()
                clock.now_ms += healthy_ms
                os.kill(supervisor.pid, signal.SIGKILL)
                assert await pauses.next() == pause
                pauses.end()
            await supervisor.wait_ready()
            assert supervisor.restarts == 4

    asyncio.run(body())


def test_delays_between_restarts() -> None:
    """Doubling from half a second to half a minute."""
    pauses, pause = [], 0
    for _ in range(8):
        pause = pause_after_ms(pause, healthy_ms=0)
        pauses.append(pause)
    assert pauses == [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]


def test_a_worker_that_dies_before_it_listens_is_restarted(tmp_path: Path) -> None:
    """It is restarted like any other."""

    async def body() -> None:
        pauses = Pauses()
        async with supervised(tmp_path, "crash", pauses=pauses) as supervisor:
            assert await pauses.next() == 0.5
            pauses.end()
            assert await pauses.next() == 1
            assert supervisor.state == COMPACTOR_STATE_RESTARTING

    asyncio.run(body())


def test_the_workers_requirements_are_known_before_spark_starts(tmp_path: Path) -> None:
    """It found its requirements and warms up; or it did not, and says what to install. Until then
    the state does not say that Spark warms up.
    """

    async def body() -> None:
        warm = tmp_path / "warm"
        os.mkfifo(warm)
        async with supervised(tmp_path, "serve-later", str(warm)) as supervisor:
            assert (supervisor.state, supervisor.message) == (COMPACTOR_STATE_STARTING, "")
            async with asyncio.timeout(WAIT_S):
                await supervisor.known()
            assert (supervisor.state, supervisor.message) == (COMPACTOR_STATE_STARTING, WARMING_UP)
            await asyncio.to_thread(warm.write_bytes, b"warm")
            await supervisor.wait_ready()
            await supervisor.known()
        async with supervised(tmp_path, "inline", str(warm)) as supervisor, asyncio.timeout(WAIT_S):
            await supervisor.known()
            assert supervisor.message == "The compactor is starting."
        async with supervised(tmp_path, "unavailable") as supervisor:
            async with asyncio.timeout(WAIT_S):
                await supervisor.known()
                assert supervisor.state == COMPACTOR_STATE_UNAVAILABLE
                supervisor.retry_now()
                assert supervisor.state == COMPACTOR_STATE_STARTING
                await supervisor.known()
            assert supervisor.state == COMPACTOR_STATE_UNAVAILABLE
            assert "Install it" in supervisor.message

    asyncio.run(body())


def test_a_worker_that_uses_another_engine_reports_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it was ready before; it is logged."""
    failed = tmp_path / "failed"
    os.mkfifo(failed)

    async def body() -> None:
        async with supervised(tmp_path, "fall-back", str(failed)) as supervisor:
            await supervisor.wait_ready()
            await asyncio.to_thread(failed.write_bytes, b"failed")
            while not supervisor.message:
                await supervisor._changed.wait()
            assert supervisor.message == "Compacting inline: Spark did not start."

    asyncio.run(body())
    assert caplog.text.count("Compacting inline") == 1


def test_an_unavailable_worker_is_reported_and_retried_at_the_next_trigger(tmp_path: Path) -> None:
    """Runs are refused at once with what to install; retry_now does not wait for the 30 s."""

    async def body() -> None:
        pauses = Pauses()
        async with supervised(tmp_path, "unavailable", pauses=pauses) as supervisor:
            assert await pauses.next() == 30
            assert supervisor.state == COMPACTOR_STATE_UNAVAILABLE
            with pytest.raises(CompactorUnavailable, match="Java 17 is needed"):
                await supervisor.run(plan(), ignore)
            supervisor.retry_now()
            with pytest.raises(CompactorUnavailable, match="Java 17 is needed"):
                await supervisor.run(plan(), ignore)
            assert await pauses.next() == 30

    asyncio.run(body())


def test_compactor_off_starts_no_worker(tmp_path: Path) -> None:
    """No process, and a clear answer."""

    async def body() -> None:
        async with supervised(tmp_path, "serve", compactor="off") as supervisor:
            assert supervisor.is_disabled
            with pytest.raises(CompactorUnavailable, match="off"):
                await supervisor.run(plan(), ignore)
            assert supervisor.pid == 0

    asyncio.run(body())


def test_the_supervisor_attaches_to_a_running_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets an address instead of a process; if the worker's owner restarts it, it reconnects."""
    monkeypatch.setenv(SECRET_VARIABLE, "shared")

    async def body() -> None:
        log = tmp_path / "log"
        worker = await WorkerProcess.start(
            [sys.executable, FAKE, "serve"], log, "token", {SECRET_VARIABLE: "shared"}
        )
        address = await worker.listening(20)
        assert address is not None
        pauses = Pauses()
        async with supervised(tmp_path, pauses=pauses, compactor=address) as supervisor:
            assert (await supervisor.run(plan(), ignore)).ledger_id == 7
            assert supervisor.pid == 0
            await worker.stop(5)
            assert await pauses.next() == 0.5
            assert supervisor.state == COMPACTOR_STATE_RESTARTING

    asyncio.run(body())


def test_a_worker_with_another_secret_refuses_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is healthy, but has another secret."""
    monkeypatch.setenv(SECRET_VARIABLE, "ours")

    async def body() -> None:
        worker = await WorkerProcess.start(
            [sys.executable, FAKE, "serve"], tmp_path / "log", "token", {SECRET_VARIABLE: "theirs"}
        )
        address = await worker.listening(20)
        assert address is not None
        async with supervised(tmp_path, compactor=address) as supervisor:
            with pytest.raises(CompactionFailed, match="at start: it knows no secret"):
                await supervisor.run(plan(), ignore)
        await worker.stop(5)

    asyncio.run(body())


def test_a_missing_secret_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs fail at once, with an error that names the setting."""
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)

    async def body() -> None:
        async with supervised(tmp_path, compactor="127.0.0.1:1") as supervisor:
            with pytest.raises(CompactorUnavailable, match=f"Set {SECRET_VARIABLE}"):
                await supervisor.run(plan(), ignore)

    asyncio.run(body())


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
def test_a_run_fails_only_when_no_process_of_its_worker_is_left(tmp_path: Path) -> None:
    """FLT-01: until then the worker's processes outside of its process group keep writing."""
    written = tmp_path / "written"

    async def body() -> None:
        pauses = Pauses()
        async with supervised(tmp_path, "family", str(written), pauses=pauses) as supervisor:
            reported = asyncio.Event()
            run = asyncio.create_task(supervisor.run(plan("stubborn"), lambda _: reported.set()))
            await reported.wait()
            token = next((tmp_path / "compactor" / "work").iterdir()).name
            assert len(list(processes(token))) == 2
            os.kill(supervisor.pid, signal.SIGKILL)
            with pytest.raises(CompactionFailed, match="SIGKILL"):
                await run
            assert list(processes(token)) == []
            assert supervisor.state == COMPACTOR_STATE_RESTARTING
            assert await pauses.next() == 0.5
            assert list((tmp_path / "compactor" / "work").iterdir()) == []

    asyncio.run(body())


@pytest.mark.parametrize(
    ("strategy", "error", "text"),
    [
        ("corrupt", Corruption, "1/0.log is damaged at byte 72"),
        ("break", CompactionFailed, "at phase two: something broke"),
        ("empty", CompactionFailed, "without a manifest"),
    ],
)
def test_errors_of_a_run(tmp_path: Path, strategy: str, error: type[Exception], text: str) -> None:
    """The worker's error returns as its class; any other is a failed compaction."""

    async def body() -> None:
        async with supervised(tmp_path, "serve") as supervisor:
            with pytest.raises(error, match=text):
                await supervisor.run(plan(strategy), ignore)
            assert supervisor.state == COMPACTOR_STATE_READY

    asyncio.run(body())


def test_cancelling_the_caller_cancels_the_run_in_the_worker(tmp_path: Path) -> None:
    """The worker's run has ended when the caller's task has; the worker lives on."""

    async def body(run: asyncio.Task[Manifest]) -> None:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    in_a_run(tmp_path, "hang", body)


def test_a_worker_that_ignores_a_cancel_is_killed(tmp_path: Path) -> None:
    """Otherwise it might go on writing into a folder that is being removed."""

    async def body() -> None:
        limits = SupervisorLimits(cancel=0.1)
        pauses = Pauses()
        async with supervised(tmp_path, "serve", limits=limits, pauses=pauses) as supervisor:
            reported = asyncio.Event()
            run = asyncio.create_task(supervisor.run(plan("stubborn"), lambda _: reported.set()))
            await reported.wait()
            process = supervisor.pid
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert await pauses.next() == 0.5
            with pytest.raises(ProcessLookupError):
                os.kill(process, 0)

    asyncio.run(body())


def test_a_run_cancelled_in_the_worker_fails(tmp_path: Path) -> None:
    """The worker's error is passed on."""

    async def body() -> None:
        async with supervised(tmp_path, "serve") as supervisor:
            reported = asyncio.Event()
            run = asyncio.create_task(supervisor.run(plan("hang"), lambda _: reported.set()))
            await reported.wait()
            connection = supervisor._connection
            assert connection is not None
            await connection.cancel("t#hang")
            with pytest.raises(CompactionCancelled):
                await run

    asyncio.run(body())


def test_stopping_the_supervisor_fails_the_run_in_progress(tmp_path: Path) -> None:
    """No caller waits for ever."""

    async def body() -> None:
        async with supervised(tmp_path, "serve") as supervisor:
            reported = asyncio.Event()
            run = asyncio.create_task(supervisor.run(plan("hang"), lambda _: reported.set()))
            await reported.wait()
            await supervisor.stop()
            with pytest.raises(CompactionFailed, match="the broker stopped it"):
                await run

    asyncio.run(body())


def own(name: str) -> CompactionStrategy:
    return CompactionStrategy(name=f"fake:{name}")


def test_a_strategy_is_checked_before_spark_is_up(tmp_path: Path) -> None:
    """The check runs as soon as the worker listens; the caller gets its result."""

    async def body() -> None:
        os.mkfifo(tmp_path / "warm")
        async with supervised(tmp_path, "serve-later", str(tmp_path / "warm")) as supervisor:
            await supervisor.check_strategy(own("Good"))
            assert supervisor.state == COMPACTOR_STATE_STARTING
            with pytest.raises(InvalidStrategy, match="'fake:Bad' cannot be used: it is no good"):
                await supervisor.check_strategy(own("Bad"))

    asyncio.run(body())


def test_a_check_that_takes_too_long(tmp_path: Path) -> None:
    """Tests a worker that starts too late, and a slow strategy: no caller waits for ever."""

    async def body() -> None:
        limits = replace(LIMITS, check=0.3)
        async with supervised(tmp_path, "serve", limits=limits) as supervisor:
            await supervisor.wait_ready()
            with pytest.raises(
                CompactorUnavailable, match=r"'fake:Slow' is user-defined: .* within 0\.3 s"
            ):
                await supervisor.check_strategy(own("Slow"))

    asyncio.run(body())


@pytest.mark.parametrize(
    ("named", "argument", "why"),
    [("off", "serve", "The compactor is off"), ("local", "unavailable", "Java 17 is needed")],
)
def test_a_check_without_a_worker(tmp_path: Path, named: str, argument: str, why: str) -> None:
    """The caller learns why there is none."""

    async def body() -> None:
        async with supervised(tmp_path, argument, compactor=named) as supervisor:
            with pytest.raises(CompactorUnavailable, match=f"'fake:Good' is user-defined.* {why}"):
                await supervisor.check_strategy(own("Good"))

    asyncio.run(body())


def test_the_workers_command_has_everything_that_it_needs(tmp_path: Path) -> None:
    """This interpreter, any free port of the loopback, Spark's master, the working directory.

    The secret is not among it: every user of the machine can read command lines."""
    settings = BrokerSettings(tmp_path, spark_master="yarn", compactor_nice=7, compactor_cores=1)
    command = worker_command(settings, tmp_path / "scratch")
    assert command == [
        *(sys.executable, "-m", "ledgerfold.compactor", "--listen", "127.0.0.1:0"),
        *("--engine", "auto"),
        *("--spark-master", "yarn", "--local-dir", str(tmp_path / "scratch")),
        *("--strategy-timeout", "60", "--strategy-memory", "1073741824"),
        *("--nice", "7", "--cores", "1"),
    ]
