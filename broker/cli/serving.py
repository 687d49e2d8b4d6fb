"""`serve`: the broker process."""

from __future__ import annotations

import argparse
from pathlib import Path

from broker.cli.emulation import add_emulation_options, emulation_of
from broker.cli.units import parse_limit_ms, parse_limit_size, parse_size, parse_time_ms

DEFAULT_LISTEN = "127.0.0.1:7650"


def add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("serve", help="run a broker on a data directory")
    parser.set_defaults(run=_serve)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="created if missing"
    )
    parser.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help="port 0: any")
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    parser.add_argument(
        "--compactor", default="local", metavar="local|off|HOST:PORT", help="default: local"
    )
    parser.add_argument("--spark-master", default="local[2]", metavar="MASTER")
    parser.add_argument("--compaction-threshold", type=parse_size, default=0, metavar="SIZE")
    parser.add_argument(
        "--compaction-monitor-interval", type=parse_time_ms, default=60_000, metavar="TIME"
    )
    parser.add_argument("--retention-time", type=parse_limit_ms, default=0, metavar="TIME|-1")
    parser.add_argument("--retention-size", type=parse_limit_size, default=0, metavar="SIZE|-1")
    parser.add_argument("--retain-null-key", action="store_true")
    add_emulation_options(parser)
    parser.add_argument("--segment-size", type=parse_size, metavar="SIZE")
    parser.add_argument("--ledger-size", type=parse_size, metavar="SIZE")
    parser.add_argument("--ledger-entries", type=int, metavar="N")
    parser.add_argument("--ledger-age", type=parse_time_ms, metavar="TIME")
    parser.add_argument("--ready-file", type=Path, metavar="PATH")
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )


def _serve(options: argparse.Namespace) -> int:
    from broker.process import serve
    from broker.settings import BrokerSettings
    from storage.ledger import StoreSettings

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
            compaction_threshold_bytes=options.compaction_threshold,
            retention_ms=options.retention_time,
            retention_bytes=options.retention_size,
            retain_null_key=options.retain_null_key,
            emulation=emulation_of(options),
            compaction_monitor_interval_ms=options.compaction_monitor_interval,
            compactor=options.compactor,
            spark_master=options.spark_master,
            ready_file=options.ready_file,
            log_level=options.log_level,
            store=StoreSettings(durability=options.durability, **given),
        )
    )
