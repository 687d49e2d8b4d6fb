"""A compactor worker without Spark, for tests of its supervisor.

    python fake_compactor.py serve                  listens, is healthy, runs plans
    python fake_compactor.py serve-later FIFO       the same, but SERVING only after a write to FIFO
    python fake_compactor.py inline FIFO            the same, and its engine is inline
    python fake_compactor.py fall-back FIFO         is healthy; after a write to FIFO it is inline
    python fake_compactor.py unavailable            says so and exits with 3
    python fake_compactor.py crash                  exits with 1 before it listens
    python fake_compactor.py family FILE            listens, with a child in a session of its own
                                                    that appends to FILE without end

The plan's `strategy` says what a run does: "publishing-order" answers with a manifest; "hang" waits
for Cancel; "stubborn" does not heed it; "corrupt" fails with DATA_CORRUPT; "orphaned" ends its
health, fails at a write to a FIFO, its `ledgers_dir`, ends at the next; "ending" is refused by a
first worker that then ends, "dying" ends it at once; "break" fails without an ErrorInfo; "empty"
ends without a manifest.

Of names with a colon, as user-defined strategies have, it knows "fake:Good"; a check of "fake:Slow"
does not end.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ledgerfold.rpc_errors import abort_with
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    CompactorUnavailable,
    Corruption,
    InvalidStrategy,
)
from ledgerfold.v1 import admin_pb2, compactor_pb2, compactor_pb2_grpc

SERVICE = "ledgerfold.v1.CompactorService"


class FakeCompactorService(compactor_pb2_grpc.CompactorServiceServicer):
    def __init__(self, health_service: Any) -> None:
        self.health = health_service
        self.cancels: dict[str, asyncio.Event] = {}

    async def Run(  # noqa: N802
        self, request: compactor_pb2.RunRequest, context: Any
    ) -> AsyncIterator[compactor_pb2.RunResponse]:
        await check_secret(context)
        plan = request.plan
        if plan.strategy == "ending" and is_first(plan.ledgers_dir):
            asyncio.get_running_loop().call_later(0.1, os._exit, 1)
            await abort_with(context, CompactorUnavailable("it is ending"))
        if plan.strategy == "dying" and is_first(plan.ledgers_dir):
            os._exit(1)
        cancel = self.cancels.setdefault(plan.run_id, asyncio.Event())
        progress = admin_pb2.CompactionProgress(phase=admin_pb2.COMPACTION_PHASE_TWO, tasks_total=2)
        yield compactor_pb2.RunResponse(progress=progress)
        say(event="running", strategy=plan.strategy)
        match plan.strategy:
            case "hang":
                await cancel.wait()
                await abort_with(context, CompactionCancelled("cancelled"))
            case "stubborn":
                await asyncio.Event().wait()
            case "orphaned":
                await self.health.set(SERVICE, health_pb2.HealthCheckResponse.NOT_SERVING)
                fifo = Path(plan.ledgers_dir)
                await asyncio.to_thread(fifo.read_bytes)
                threading.Thread(target=end_when_told, args=(fifo,), daemon=True).start()
                await abort_with(context, CompactionFailed("phase two", "its JVM ended"))
            case "corrupt":
                await abort_with(context, Corruption("1/0.log", 72, "its CRC", "another"))
            case "break":
                await context.abort(grpc.StatusCode.INTERNAL, "something broke")
            case "empty":
                return
        manifest = compactor_pb2.Manifest(
            run_id=plan.run_id, ledger_id=plan.ledger_id, horizon=plan.horizon
        )
        yield compactor_pb2.RunResponse(manifest=manifest)

    async def Cancel(  # noqa: N802
        self, request: compactor_pb2.CancelRequest, context: Any
    ) -> compactor_pb2.CancelResponse:
        await check_secret(context)
        cancel = self.cancels.get(request.run_id)
        if cancel is not None:
            cancel.set()
        return compactor_pb2.CancelResponse(found=cancel is not None)

    async def CheckStrategy(  # noqa: N802
        self, request: compactor_pb2.CheckStrategyRequest, context: Any
    ) -> compactor_pb2.CheckStrategyResponse:
        await check_secret(context)
        name = request.strategy.name
        if name == "fake:Slow":
            await asyncio.Event().wait()
        if ":" in name and name != "fake:Good":
            await abort_with(context, InvalidStrategy(name, "it is no good"))
        return compactor_pb2.CheckStrategyResponse(name=name, version="1", kind="strategic")


def end_when_told(fifo: Path) -> None:
    fifo.read_bytes()
    os._exit(1)


def is_first(folder: str) -> bool:
    """Returns whether no worker was asked before: the folder tells the next one."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        return False
    return True


async def check_secret(context: Any) -> None:
    wanted = os.environ["LEDGERFOLD_COMPACTOR_SECRET"].encode()
    if dict(context.invocation_metadata()).get("ledgerfold-compactor-secret-bin") != wanted:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "it knows no secret")


async def serve(
    wait_for: Path | None = None, engine: str = "spark", falls_back: Path | None = None
) -> None:
    server = grpc.aio.server()
    health_service = cast(Any, health).aio.HealthServicer()
    add_service: Any = compactor_pb2_grpc.add_CompactorServiceServicer_to_server
    add_health: Any = health_pb2_grpc.add_HealthServicer_to_server
    add_service(FakeCompactorService(health_service), server)
    add_health(health_service, server)
    await health_service.set(SERVICE, health_pb2.HealthCheckResponse.NOT_SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say(event="listening", port=port, pid=os.getpid(), engine=engine, why="")
    if wait_for is not None:
        await asyncio.to_thread(wait_for.read_bytes)
    await health_service.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    if falls_back is not None:
        await asyncio.to_thread(falls_back.read_bytes)
        say(event="engine", engine="inline", why="Spark did not start.")
    # Its end is the parent's.
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def main() -> int:
    print("a line that is no event", flush=True)
    print("a line for the log", file=sys.stderr, flush=True)
    match sys.argv[1]:
        case "unavailable":
            say(event="unavailable", message="Java 17 is needed. Install it.")
            return 3
        case "crash":
            return 1
        case "family":
            writer = "import sys\nwhile True: open(sys.argv[1], 'a').write('x')"
            command = [sys.executable, "-c", writer, sys.argv[2]]
            subprocess.Popen(command, start_new_session=True)
            asyncio.run(serve())
        case "serve-later":
            asyncio.run(serve(Path(sys.argv[2])))
        case "inline":
            asyncio.run(serve(Path(sys.argv[2]), "inline"))
        case "fall-back":
            asyncio.run(serve(falls_back=Path(sys.argv[2])))
        case _:
            asyncio.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
