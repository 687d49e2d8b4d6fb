"""`serve`: the broker process."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.kafka.config import KAFKA_CONFIG, serve_config
from ledgerfold.broker.cli.pulsar_config import PULSAR_CONFIG, with_pulsar_config
from ledgerfold.broker.cli.pulsar_security import roles_in
from ledgerfold.broker.cli.topics.serve_options import (
    ALLOW_STRATEGY,
    EMULATION_OPTIONS,
    SCHEMA_STRATEGIES,
    allowed_of,
    emulation_of,
    strategy_and_service_of,
    strategy_options,
)
from ledgerfold.broker.cli.units import (
    DIR,
    FILE,
    LIMIT_SIZE,
    LIMIT_TIME,
    POSITIVE,
    SIZE,
    TIME,
    parse_count,
    parse_moment_ms,
    parse_positive,
    parse_size,
    parse_time_ms,
)
from ledgerfold.broker.cli.verbs import Argument, Verbs, argument, flag, group
from ledgerfold.garbage import garbage_kept
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from ledgerfold.broker.common.security_settings import SecuritySettings

DEFAULT_LISTEN = "127.0.0.1:7650"
# ENTRY_BYTES_MAX of storage/entry.py, which `--help` need not load.
_MESSAGE_BYTES_MOST = 16 * 1024 * 1024
# Above it, the dead messages would take several times the space of the others.
_GARBAGE_PERCENT_MAX = 90


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


def _size_from(least_mib: int) -> Callable[[str], int]:
    """Returns a parser of sizes of at least that many MiB."""

    def parse(text: str) -> int:
        size_bytes = parse_size(text)
        if size_bytes < least_mib << 20:
            raise argparse.ArgumentTypeError(f"{text!r}: must be {least_mib}M or more")
        return size_bytes

    return parse


def _percent(text: str) -> float:
    """Parses a part of a whole, such as `30%`."""
    digits = text.removesuffix("%")
    if not digits.isdecimal() or int(digits) > _GARBAGE_PERCENT_MAX:
        most = f"from 0% to {_GARBAGE_PERCENT_MAX}%"
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole percentage {most}")
    return int(digits) / 100


def _cores(text: str) -> int:
    """Parses a number of processors for the worker."""
    if not hasattr(os, "sched_setaffinity"):
        raise argparse.ArgumentTypeError("this system cannot limit a process to some processors")
    return parse_positive(text)


def _start_ms(text: str) -> int:
    return time.time_ns() // 1_000_000 if text == "now" else parse_moment_ms(text)


SECURITY = group(
    "TLS and authentication",
    argument(
        "--tls-cert FILE", "serve TLS at every address, with this certificate chain (PEM); it is "
        "read again when it changes", type=absolute_path,
    ),
    argument("--tls-key FILE", "the certificate's private key (PEM)", type=absolute_path),
    argument(
        "--tls-client-ca FILE", "require a client certificate that one of these authorities has "
        "signed (PEM); its common name is the client's role", type=absolute_path,
    ),
    argument(
        "--token-secret-key KEY", "authenticate clients by tokens that are signed with this secret "
        "key: a file, or data:;base64,KEY; `ledgerfold tokens` creates keys and tokens",
    ),
    argument("--token-public-key KEY", "as --token-secret-key, with the public key of a pair"),
    argument("--token-auth-claim NAME", "the claim that holds the role; default sub",
             default="sub"),
    argument("--token-audience TEXT", "refuse tokens that are not for this audience"),
    argument("--token-audience-claim NAME", "the claim that holds the audience; default aud",
             default="aud"),
    argument("--superuser-roles ROLES", "the roles that may do everything, separated by commas",
             type=roles_in, default=()),
    argument("--proxy-roles ROLES", "the roles of proxies, separated by commas; a request needs "
             "the permissions of both the proxy and its client", type=roles_in, default=()),
    flag("--metrics-for-all", "serve metrics to clients without credentials, too"),
    flag("--insecure", "listen beyond this machine without authentication: any client that reaches "
         "the broker may do everything"),
)  # fmt: skip


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    config = "a TOML file with options of `serve`: names without --, as keys"
    add("--config", **FILE, help=config)
    data = "the data directory; created if it does not exist"
    add("--data", **DIR, required=True, help=data)
    archive = (
        "import the topic of a file that `topics export` wrote, unless it exists; may be repeated"
    )
    add("--import", **FILE, action="append", default=[], dest="imports", help=archive)
    listen = f"address for clients; default {DEFAULT_LISTEN}; port 0 chooses a free one"
    add("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help=listen)
    metrics = (
        "serve Prometheus metrics at http://HOST:PORT/metrics; default: only at the port of the "
        "admin REST API, if any"
    )
    add("--metrics-listen", metavar="HOST:PORT", help=metrics)
    rest = (
        "serve Pulsar's admin REST API at http://HOST:PORT/admin/v2, as pulsar-admin uses it; "
        "default: not served"
    )
    add("--admin-listen", metavar="HOST:PORT", help=rest)
    pulsar = "serve Pulsar's binary protocol at pulsar://HOST:PORT; default: not served"
    add("--pulsar-listen", metavar="HOST:PORT", help=pulsar)
    advertise = "the address that Pulsar's clients get; default: the one that they connected to"
    add("--pulsar-advertise", metavar="HOST:PORT", help=advertise)
    _add_page(add)
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
        metavar="SIZE",
        dest="message_bytes_max",
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
        dest="test_clock_start_ms",
        help="use a manual clock that starts at TIME or now; `ledgerfold clock` moves it",
    )
    resets = "let clients delete everything at once, for tests; implied by --test-clock"
    add("--allow-reset", action="store_true", help=resets)
    faults = "let clients make the broker fail on purpose, for tests (`ledgerfold faults`)"
    add("--allow-faults", action="store_true", help=faults)
    SECURITY.add_to(parser)
    _add_compactor(parser.add_argument_group("compaction"))
    _add_policies(parser.add_argument_group("default policies of namespaces and topics"))
    KAFKA_CONFIG.add_to(parser.add_argument_group("Kafka topics"))
    PULSAR_CONFIG.add_to(parser.add_argument_group("settings of a Pulsar broker"))
    _add_bounds(parser.add_argument_group("limits for all clients together"))
    _add_sizes(parser.add_argument_group("sizes of segments and ledgers"))


def _add_page(add: Callable[..., object]) -> None:
    page = "serve a page for browsers at http://HOST:PORT; default: not served"
    add("--ui", metavar="HOST:PORT", dest="ui_listen", help=page)
    writes = "let the page publish, read messages, compact, and move a test clock"
    add("--ui-writes", action="store_true", help=writes)
    name = (
        "serve the page, the admin REST API and metrics under this host name, too; may be repeated"
    )
    add("--ui-host", action="append", default=[], metavar="NAME", dest="ui_names", help=name)


def _add_compactor(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    compactor = (
        "where compaction runs. spark: a worker on Spark. inline: a worker without Java. auto, the "
        "default: spark if it starts, else inline. off: no compaction. HOST:PORT: a worker that "
        "was started separately, with the same LEDGERFOLD_COMPACTOR_SECRET in its environment"
    )
    add("--compactor", default="auto", metavar="auto|spark|inline|off|HOST:PORT", help=compactor)
    master = (
        "the Spark master of a local worker; its cores also divide inline runs; default local[2]"
    )
    add("--spark-master", default="local[2]", metavar="MASTER", help=master)
    nice = "the nice value of a local worker, 0 to 19 (19: lowest priority); default 0"
    add("--compactor-nice", type=int, choices=range(20), default=0, metavar="N", help=nice)
    cores = (
        "let a local worker use only N of the machine's processors; publishing is faster during a "
        "run, which takes longer; Linux only; default: all"
    )
    add("--compactor-cores", type=_cores, metavar="N", help=cores)
    service = (
        "a user-defined compaction service, created by module:Factory in the broker's process; "
        "either of Pulsar's two factories selects the worker with that strategy"
    )
    add("--compaction-service", metavar="module:Factory", help=service)
    ALLOW_STRATEGY.add_to(group)
    answer = "fail a run if its user-defined strategy takes longer for one message; default 60s"
    add("--strategy-timeout", type=_timeout_ms, default=60_000, metavar="TIME", help=answer)
    # A task needs 128M without the user's strategy.
    memory = "fail a run if a task with a user-defined strategy uses more memory; default 1G"
    add("--strategy-memory", type=_size_from(128), default=1 << 30, metavar="SIZE", help=memory)
    garbage = (
        "rewrite a segment of a compacted ledger when dead messages exceed this part of it; "
        "default 30%%; 0%% leaves no dead messages, which clients of 0.1.0 cannot read"
    )
    garbage_max = "--compaction-segment-garbage-max"
    add(garbage_max, type=_percent, metavar="PERCENT", dest="segment_garbage_max", help=garbage)
    interval = "how often to check backlogs against compaction thresholds; default 60s"
    add("--compaction-monitor-interval", **TIME, default=60_000, help=interval)


def _add_policies(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    threshold = "compact a topic when its backlog exceeds this; default 0: on command only"
    add("--compaction-threshold", **SIZE, dest="compaction_threshold_bytes", help=threshold)
    strategy = "the compaction strategy; default publishing-order"
    strategy_options(strategy, "--strategy-set").add_to(group)
    passed, limits = "retain raw data that every cursor has passed", "default 0; -1: no limit"
    time_limit = f"{passed} for this time; {limits}"
    add("--retention-time", **LIMIT_TIME, dest="retention_ms", help=time_limit)
    size_limit = f"{passed} up to this size; {limits}"
    add("--retention-size", **LIMIT_SIZE, dest="retention_bytes", help=size_limit)
    ttl = "expire messages older than this; default 0: never"
    add("--message-ttl", **TIME, dest="message_ttl_ms", help=ttl)
    keys = "retain messages without a key in compaction; default: drop them"
    add("--retain-null-key", action="store_true", help=keys)
    schemas = "what a new schema must be compatible with; default BACKWARD"
    add("--schema-compatibility", default="BACKWARD", choices=SCHEMA_STRATEGIES, help=schemas)
    enforced = "refuse producers without a schema on a topic with one; default: accept them"
    add("--schema-validation-enforced", action="store_true", help=enforced)
    updates = "let only administrators add schemas; default: producers and consumers, too"
    add("--no-schema-auto-update", action="store_true", help=updates)
    EMULATION_OPTIONS.add_to(group)


def _add_sizes(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    segment = "roll a segment file at this size; default 64M"
    add("--segment-size", **SIZE, dest="segment_bytes_max", help=segment)
    size = "roll a ledger at this size; default 2G"
    add("--ledger-size", **SIZE, dest="ledger_bytes_max", help=size)
    entries = "roll a ledger at this many entries; default 50000"
    add("--ledger-entries", **POSITIVE, dest="ledger_entries_max", help=entries)
    age = "roll a ledger at this age; default 4h"
    add("--ledger-age", **TIME, dest="ledger_age_max_ms", help=age)


def _add_bounds(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    streams = "the maximum number of producers, consumers, readers and watchers; default 20000"
    add("--streams-max", **POSITIVE, default=20_000, help=streams)
    # 16M have space for an entry of any size.
    unsent = (
        "stop reading for clients while this much data waits to be sent, and disconnect clients "
        "that do not receive; default 256M"
    )
    requests = (
        "the maximum number of requests per second of one role, or without authentication of one "
        "address; messages of open producers, consumers and readers do not count; default 0: no "
        "limit"
    )
    add("--max-requests-per-second", type=parse_count, metavar="N", default=0, help=requests)
    add("--unsent-max", type=_size_from(16), metavar="SIZE", dest="unsent_bytes_max", help=unsent)


COMMANDS = Verbs()


@COMMANDS.verb(
    "serve",
    "run a broker on a data directory",
    Argument(_add_options),
    description="Runs a broker on one data directory, until Ctrl-C or SIGTERM.",
    epilog="Each option is also a variable, LEDGERFOLD_NAME, and a key of the file that --config "
    "names. The command line has priority over the variable, the variable over the file.",
    calls_broker=False,
    has_sources=True,
)
def _serve(options: argparse.Namespace) -> int:
    with garbage_kept():
        from ledgerfold.broker.common.settings import BrokerSettings
        from ledgerfold.broker.server.process import serve
        from ledgerfold.storage.settings import StoreSettings
        from ledgerfold.strategies.catalogue import DEFAULT
        from ledgerfold.v1.records_pb2 import CompactionStrategy

    strategy, service = strategy_and_service_of(options)
    strategy = strategy or CompactionStrategy(name=DEFAULT)
    named = BrokerSettings(data_dir=options.data, **options_named_as(BrokerSettings, options))
    settings = replace(
        named,
        requests_per_second_max=options.max_requests_per_second,
        compaction_strategy=strategy,
        allowed_strategies=allowed_of(options, strategy.name),
        compaction_service=service,
        strategy_timeout_ms=options.strategy_timeout,
        strategy_memory_bytes=options.strategy_memory,
        emulation=emulation_of(options),
        allow_auto_update_schema=not options.no_schema_auto_update,
        kafka_config=serve_config(options),
        compaction_monitor_interval_ms=options.compaction_monitor_interval,
        security=security_of(options),
        store=StoreSettings(**options_named_as(StoreSettings, options)),
    )
    return serve(with_pulsar_config(settings, options))


def security_of(options: argparse.Namespace) -> SecuritySettings:
    from ledgerfold.broker.common.security_settings import SecuritySettings

    named = options_named_as(SecuritySettings, options)
    return SecuritySettings(**named, protects_metrics=not options.metrics_for_all)


def options_named_as(settings: type[Any], options: argparse.Namespace) -> dict[str, Any]:
    """Returns the given options that have the name of a field of `settings`, a dataclass."""
    found = {each.name: getattr(options, each.name, None) for each in fields(settings)}
    return {name: value for name, value in found.items() if value is not None}
