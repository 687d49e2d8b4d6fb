"""`serve`: the broker process."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from ledgerfold.broker.cli.kafka.config import add_serve_options, serve_config
from ledgerfold.broker.cli.topics.emulation import add_emulation_options, emulation_of
from ledgerfold.broker.cli.topics.strategies import (
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
# The memory that a task needs without the user's strategy.
_MEMORY_BYTES_LEAST = 128 * 1024 * 1024


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    what = "Runs a broker on one data directory, until Ctrl-C or SIGTERM."
    parser = commands.add_parser(
        "serve", help="run a broker on a data directory", description=what, calls_broker=False
    )
    parser.set_defaults(run=_serve)
    add = parser.add_argument
    data = "the data directory; created if it does not exist"
    add("--data", type=absolute_path, required=True, metavar="DIR", help=data)
    listen = f"address for clients; default {DEFAULT_LISTEN}; port 0 chooses a free one"
    add("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help=listen)
    metrics = "serve Prometheus metrics at http://HOST:PORT/metrics; default: no metrics"
    add("--metrics-listen", metavar="HOST:PORT", help=metrics)
    add(
        "--durability",
        choices=("fsync", "os"),
        default="fsync",
        help="acknowledge a message once it is on disk (fsync, the default) or in the page cache",
    )
    ready = "write the startup line to this file once the broker is ready"
    add("--ready-file", type=absolute_path, metavar="PATH", help=ready)
    add(
        "--max-message-size",
        type=_message_size,
        default=5 * 1024 * 1024,
        metavar="SIZE",
        help="refuse larger messages and batches; default 5M, as in Pulsar; at most 16M",
    )
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    level = "minimum level of log messages; default INFO"
    add("--log-level", default="INFO", choices=levels, help=level)
    add(
        "--test-clock",
        nargs="?",
        const="now",
        type=_start_ms,
        metavar="TIME",
        help="use a manual clock that starts at TIME or now; `ledgerfold clock` moves it",
    )
    _add_compactor(parser.add_argument_group("compaction").add_argument)
    _add_policies(parser.add_argument_group("default policies of namespaces and topics"))
    add_serve_options(parser.add_argument_group("Kafka topics"))
    _add_bounds(parser.add_argument_group("limits for all clients together").add_argument)
    _add_sizes(parser.add_argument_group("sizes of segments and ledgers").add_argument)


def _add_compactor(add: Callable[..., object]) -> None:
    compactor = (
        "start a worker (local, the default), disable compaction (off), or use the worker at "
        "HOST:PORT, which needs the same LEDGERFOLD_COMPACTOR_SECRET in its environment"
    )
    add("--compactor", default="local", metavar="local|off|HOST:PORT", help=compactor)
    master = "the Spark master of a local worker; default local[2]"
    add("--spark-master", default="local[2]", metavar="MASTER", help=master)
    service = (
        "a user-defined compaction service, created by module:Factory in the broker's process; "
        "either of Pulsar's two factories selects the worker with that strategy"
    )
    add("--compaction-service", metavar="module:Factory", help=service)
    add_allow_strategy(add)
    answer = "fail a run whose user-defined strategy takes longer for an answer; default 60s"
    add("--strategy-timeout", type=_timeout_ms, default=60_000, metavar="TIME", help=answer)
    memory = "fail a run whose user-defined strategy makes a task use more memory; default 1G"
    add("--strategy-memory", type=_memory, default=1 << 30, metavar="SIZE", help=memory)
    add(
        "--compaction-monitor-interval",
        type=parse_time_ms,
        default=60_000,
        metavar="TIME",
        help="how often to check backlogs against compaction thresholds; default 60s",
    )


def _add_policies(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    threshold = "compact a topic when its backlog exceeds this; default 0: on command only"
    add("--compaction-threshold", type=parse_size, default=0, metavar="SIZE", help=threshold)
    strategy = "the compaction strategy; default publishing-order"
    add_strategy_options(group, strategy, "--strategy-set")
    passed, limits = "retain raw data that every cursor has passed", "default 0; -1: no limit"
    time_limit, size_limit = (
        f"{passed} for this time; {limits}",
        f"{passed} up to this size; {limits}",
    )
    add("--retention-time", type=parse_limit_ms, default=0, metavar="TIME|-1", help=time_limit)
    add("--retention-size", type=parse_limit_size, default=0, metavar="SIZE|-1", help=size_limit)
    ttl = "expire messages older than this; default 0: never"
    add("--message-ttl", type=parse_time_ms, default=0, metavar="TIME", help=ttl)
    keys = "retain messages without a key in compaction; default: drop them"
    add("--retain-null-key", action="store_true", help=keys)
    add_emulation_options(group)


def _add_sizes(add: Callable[..., object]) -> None:
    segment, ledger = "roll a segment file at", "roll a ledger at"
    add("--segment-size", type=parse_size, metavar="SIZE", help=f"{segment} this size; default 64M")
    add("--ledger-size", type=parse_size, metavar="SIZE", help=f"{ledger} this size; default 2G")
    entries = f"{ledger} this many entries; default 50000"
    add("--ledger-entries", type=parse_positive, metavar="N", help=entries)
    add("--ledger-age", type=parse_time_ms, metavar="TIME", help=f"{ledger} this age; default 4h")


def _add_bounds(add: Callable[..., object]) -> None:
    streams = "the maximum of producers, consumers, readers and watchers; default 20000"
    add("--streams-max", type=parse_positive, default=20_000, metavar="N", help=streams)
    unsent = (
        "stop reading for clients while this much waits to be sent, and disconnect clients that "
        "do not receive; default 256M"
    )
    add("--unsent-max", type=_unsent, default=256 << 20, metavar="SIZE", help=unsent)


def _message_size(text: str) -> int:
    """Parses a size that an entry can have."""
    size_bytes = parse_size(text)
    if size_bytes > _MESSAGE_BYTES_MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: must be at most 16 MiB")
    if size_bytes == 0:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return size_bytes


def _timeout_ms(text: str) -> int:
    time_ms = parse_time_ms(text)
    if time_ms == 0:
        raise argparse.ArgumentTypeError("must be 1ms or more")
    return time_ms


def _memory(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes < _MEMORY_BYTES_LEAST:
        raise argparse.ArgumentTypeError(f"{text!r}: must be 128M or more")
    return size_bytes


def _unsent(text: str) -> int:
    """Parses a size that has space for an entry of any size."""
    size_bytes = parse_size(text)
    if size_bytes < _MESSAGE_BYTES_MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: must be 16M or more")
    return size_bytes


def _start_ms(text: str) -> int:
    return time.time_ns() // 1_000_000 if text == "now" else parse_moment_ms(text)


def _serve(options: argparse.Namespace) -> int:
    from ledgerfold.broker.common.settings import BrokerSettings
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
