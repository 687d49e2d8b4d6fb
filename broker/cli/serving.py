"""`serve`: the broker process."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from ledgerfold.broker.cli.emulation import add_emulation_options, emulation_of
from ledgerfold.broker.cli.units import (
    parse_limit_ms,
    parse_limit_size,
    parse_moment_ms,
    parse_positive,
    parse_size,
    parse_time_ms,
)

DEFAULT_LISTEN = "127.0.0.1:7650"
# ENTRY_BYTES_MAX of storage/entry.py, which `--help` need not load.
MESSAGE_BYTES_MOST = 16 * 1024 * 1024


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("serve", help="run a broker on a data directory")
    parser.set_defaults(run=_serve)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="created if missing")
    add("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help="port 0: any")
    metrics = "serve Prometheus metrics at http://HOST:PORT/metrics; default: nowhere"
    add("--metrics-listen", metavar="HOST:PORT", help=metrics)
    add(
        "--durability",
        choices=("fsync", "os"),
        default="fsync",
        help="what a receipt promises: synced to disk (default), or handed to the system",
    )
    add("--ready-file", type=Path, metavar="PATH", help="written when it is ready to serve")
    add(
        "--max-message-size",
        type=parse_message_size,
        default=5 * 1024 * 1024,
        metavar="SIZE",
        help="messages and batches above it are refused; default 5M as in Pulsar, 16M at most",
    )
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    add("--log-level", default="INFO", choices=levels, help="default INFO")
    add(
        "--test-clock",
        nargs="?",
        const="now",
        type=_start_ms,
        metavar="TIME",
        help="the time stands, at TIME or now, until `ledgerfold clock` moves it",
    )
    _add_compactor(parser.add_argument_group("compaction").add_argument)
    _add_policies(parser.add_argument_group("policies, where no namespace or topic has its own"))
    _add_sizes(parser.add_argument_group("when segments and ledgers are full").add_argument)


def _add_compactor(add: Callable[..., object]) -> None:
    elsewhere = "default: local; HOST:PORT: a worker whose LEDGERFOLD_COMPACTOR_SECRET is ours, too"
    add("--compactor", default="local", metavar="local|off|HOST:PORT", help=elsewhere)
    add("--spark-master", default="local[2]", metavar="MASTER", help="default: local[2]")
    add(
        "--compaction-monitor-interval",
        type=parse_time_ms,
        default=60_000,
        metavar="TIME",
        help="how often backlogs are compared with thresholds; default 60s",
    )


def _add_policies(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    threshold = "compact above this backlog; default 0: never"
    add("--compaction-threshold", type=parse_size, default=0, metavar="SIZE", help=threshold)
    retention = "of raw data that every cursor has passed; default 0, -1: no limit"
    add("--retention-time", type=parse_limit_ms, default=0, metavar="TIME|-1", help=retention)
    add("--retention-size", type=parse_limit_size, default=0, metavar="SIZE|-1", help=retention)
    ttl = "what is older counts as acknowledged; default 0: never"
    add("--message-ttl", type=parse_time_ms, default=0, metavar="TIME", help=ttl)
    add("--retain-null-key", action="store_true", help="compaction keeps messages without a key")
    add_emulation_options(group)


def _add_sizes(add: Callable[..., object]) -> None:
    add("--segment-size", type=parse_size, metavar="SIZE", help="default 64M")
    add("--ledger-size", type=parse_size, metavar="SIZE", help="default 2G")
    add("--ledger-entries", type=parse_positive, metavar="N", help="default 50000")
    add("--ledger-age", type=parse_time_ms, metavar="TIME", help="default 4h")


def parse_message_size(text: str) -> int:
    """A size that an entry can have."""
    size_bytes = parse_size(text)
    if size_bytes > MESSAGE_BYTES_MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: 16 MiB is the most")
    if size_bytes == 0:
        raise argparse.ArgumentTypeError("1 is the least")
    return size_bytes


def _start_ms(text: str) -> int:
    return time.time_ns() // 1_000_000 if text == "now" else parse_moment_ms(text)


def _serve(options: argparse.Namespace) -> int:
    from ledgerfold.broker.ground.settings import BrokerSettings
    from ledgerfold.broker.server.process import serve
    from ledgerfold.storage.settings import StoreSettings

    store = {
        "segment_bytes_max": options.segment_size,
        "ledger_bytes_max": options.ledger_size,
        "ledger_entries_max": options.ledger_entries,
        "ledger_age_max_ms": options.ledger_age,
    }
    given = {name: value for name, value in store.items() if value is not None}
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
            emulation=emulation_of(options),
            compaction_monitor_interval_ms=options.compaction_monitor_interval,
            compactor=options.compactor,
            spark_master=options.spark_master,
            test_clock_start_ms=options.test_clock,
            ready_file=options.ready_file,
            log_level=options.log_level,
            message_bytes_max=options.max_message_size,
            store=StoreSettings(durability=options.durability, **given),
        )
    )
