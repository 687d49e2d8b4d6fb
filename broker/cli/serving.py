"""`serve`: the broker process."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from ledgerfold.broker.cli.emulation import add_emulation_options, emulation_of
from ledgerfold.broker.cli.kafka_config import add_serve_options, serve_config
from ledgerfold.broker.cli.strategies import (
    add_allow_strategy,
    add_strategy_options,
    allowed_of,
    strategy_and_service_of,
)
from ledgerfold.broker.cli.units import (
    parse_limit_ms,
    parse_limit_size,
    parse_moment_ms,
    parse_positive,
    parse_size,
    parse_time_ms,
)
from ledgerfold.storage.paths import absolute_path

DEFAULT_LISTEN = "127.0.0.1:7650"
# ENTRY_BYTES_MAX of storage/entry.py, which `--help` need not load.
_MESSAGE_BYTES_MOST = 16 * 1024 * 1024
# What a task of ours itself needs meanwhile.
_MEMORY_BYTES_LEAST = 128 * 1024 * 1024


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    what = "A broker serves one data directory, until Ctrl-C or SIGTERM ends it."
    parser = commands.add_parser(
        "serve", help="run a broker on a data directory", description=what, calls_broker=False
    )
    parser.set_defaults(run=_serve)
    add = parser.add_argument
    data = "the data directory; it is made if it is missing"
    add("--data", type=absolute_path, required=True, metavar="DIR", help=data)
    listen = f"clients connect here; default {DEFAULT_LISTEN}; port 0 is any that is free"
    add("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help=listen)
    metrics = "Prometheus finds metrics at http://HOST:PORT/metrics; by default it finds none"
    add("--metrics-listen", metavar="HOST:PORT", help=metrics)
    add(
        "--durability",
        choices=("fsync", "os"),
        default="fsync",
        help="a receipt means: the disk has the message (fsync, the default), or the system has it",
    )
    ready = "this file is written when the broker serves; it holds the line that is printed then"
    add("--ready-file", type=absolute_path, metavar="PATH", help=ready)
    add(
        "--max-message-size",
        type=_message_size,
        default=5 * 1024 * 1024,
        metavar="SIZE",
        help="larger messages and batches are refused; default 5M, as in Pulsar; 16M is the most",
    )
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    level = "the broker logs what is at least as grave; default INFO"
    add("--log-level", default="INFO", choices=levels, help=level)
    add(
        "--test-clock",
        nargs="?",
        const="now",
        type=_start_ms,
        metavar="TIME",
        help="the broker's time stands still, at TIME or now; `ledgerfold clock` moves it",
    )
    _add_compactor(parser.add_argument_group("compaction").add_argument)
    _add_policies(parser.add_argument_group("policies, where no namespace or topic has its own"))
    add_serve_options(parser.add_argument_group("Kafka topics"))
    _add_bounds(parser.add_argument_group("bounds of all clients together").add_argument)
    _add_sizes(parser.add_argument_group("the end of segments and ledgers").add_argument)


def _add_compactor(add: Callable[..., object]) -> None:
    compactor = (
        "the broker starts a worker (local, the default), compacts nothing (off), or uses the "
        "worker at HOST:PORT, which has the same LEDGERFOLD_COMPACTOR_SECRET in its environment"
    )
    add("--compactor", default="local", metavar="local|off|HOST:PORT", help=compactor)
    master = "a worker that the broker starts runs Spark there; default local[2]"
    add("--spark-master", default="local[2]", metavar="MASTER", help=master)
    service = (
        "compactions are carried out by what module:Factory makes, in the broker's process; one of "
        "Pulsar's two factories is the worker with that strategy"
    )
    add("--compaction-service", metavar="module:Factory", help=service)
    add_allow_strategy(add)
    answer = "a strategy of your own that takes longer for an answer fails its run; default 60s"
    add("--strategy-timeout", type=_timeout_ms, default=60_000, metavar="TIME", help=answer)
    memory = "so does one with which a task takes more memory; default 1G"
    add("--strategy-memory", type=_memory, default=1 << 30, metavar="SIZE", help=memory)
    add(
        "--compaction-monitor-interval",
        type=parse_time_ms,
        default=60_000,
        metavar="TIME",
        help="backlogs are compared with thresholds this often; default 60s",
    )


def _add_policies(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    threshold = "a topic is compacted when its backlog is above this; default 0: on command only"
    add("--compaction-threshold", type=parse_size, default=0, metavar="SIZE", help=threshold)
    strategy = "a compaction keeps of each key what this strategy says; default publishing-order"
    add_strategy_options(group, strategy, "--strategy-set")
    passed, limits = "raw data that every cursor has passed stay", "default 0; -1 is no limit"
    time_limit, size_limit = f"{passed} this long; {limits}", f"{passed} up to this size; {limits}"
    add("--retention-time", type=parse_limit_ms, default=0, metavar="TIME|-1", help=time_limit)
    add("--retention-size", type=parse_limit_size, default=0, metavar="SIZE|-1", help=size_limit)
    ttl = "a message that is older counts as acknowledged; default 0: none does"
    add("--message-ttl", type=parse_time_ms, default=0, metavar="TIME", help=ttl)
    keys = "messages without a key survive compaction; by default they do not"
    add("--retain-null-key", action="store_true", help=keys)
    add_emulation_options(group)


def _add_sizes(add: Callable[..., object]) -> None:
    segment, ledger = "a segment file ends at", "a ledger ends at"
    add("--segment-size", type=parse_size, metavar="SIZE", help=f"{segment} this size; default 64M")
    add("--ledger-size", type=parse_size, metavar="SIZE", help=f"{ledger} this size; default 2G")
    entries = f"{ledger} this many entries; default 50000"
    add("--ledger-entries", type=parse_positive, metavar="N", help=entries)
    add("--ledger-age", type=parse_time_ms, metavar="TIME", help=f"{ledger} this age; default 4h")


def _add_bounds(add: Callable[..., object]) -> None:
    streams = "more producers, consumers, readers and watchers than this are refused; default 20000"
    add("--streams-max", type=parse_positive, default=20_000, metavar="N", help=streams)
    unsent = (
        "nothing is read on for clients while so much waits to be sent, and those that take "
        "nothing are disconnected then; default 256M"
    )
    add("--unsent-max", type=_unsent, default=256 << 20, metavar="SIZE", help=unsent)


def _message_size(text: str) -> int:
    """One that an entry can have."""
    size_bytes = parse_size(text)
    if size_bytes > _MESSAGE_BYTES_MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: 16 MiB is the most")
    if size_bytes == 0:
        raise argparse.ArgumentTypeError("1 is the least")
    return size_bytes


def _timeout_ms(text: str) -> int:
    time_ms = parse_time_ms(text)
    if time_ms == 0:
        raise argparse.ArgumentTypeError("1ms is the least")
    return time_ms


def _memory(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes < _MEMORY_BYTES_LEAST:
        raise argparse.ArgumentTypeError(f"{text!r}: 128M is the least")
    return size_bytes


def _unsent(text: str) -> int:
    """Room for an entry of any size."""
    size_bytes = parse_size(text)
    if size_bytes < _MESSAGE_BYTES_MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: 16M is the least")
    return size_bytes


def _start_ms(text: str) -> int:
    return time.time_ns() // 1_000_000 if text == "now" else parse_moment_ms(text)


def _serve(options: argparse.Namespace) -> int:
    from ledgerfold.broker.ground.settings import BrokerSettings
    from ledgerfold.broker.server.process import serve
    from ledgerfold.storage.settings import StoreSettings
    from ledgerfold.strategies.catalogue import DEFAULT
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    store = {
        "segment_bytes_max": options.segment_size,
        "ledger_bytes_max": options.ledger_size,
        "ledger_entries_max": options.ledger_entries,
        "ledger_age_max_ms": options.ledger_age,
    }
    given = {name: value for name, value in store.items() if value is not None}
    strategy, service = strategy_and_service_of(options)
    strategy = strategy or CompactionStrategy(name=DEFAULT)
    return serve(
        BrokerSettings(
            data_dir=options.data,
            listen=options.listen,
            metrics_listen=options.metrics_listen,
            compaction_threshold_bytes=options.compaction_threshold,
            retention_ms=options.retention_time,
            retention_bytes=options.retention_size,
            message_ttl_ms=options.message_ttl,
            retain_null_key=options.retain_null_key,
            compaction_strategy=strategy,
            allowed_strategies=allowed_of(options, strategy.name),
            compaction_service=service,
            strategy_timeout_ms=options.strategy_timeout,
            strategy_memory_bytes=options.strategy_memory,
            emulation=emulation_of(options),
            kafka_config=serve_config(options),
            compaction_monitor_interval_ms=options.compaction_monitor_interval,
            compactor=options.compactor,
            spark_master=options.spark_master,
            test_clock_start_ms=options.test_clock,
            ready_file=options.ready_file,
            log_level=options.log_level,
            message_bytes_max=options.max_message_size,
            streams_max=options.streams_max,
            unsent_bytes_max=options.unsent_max,
            store=StoreSettings(durability=options.durability, **given),
        )
    )
