"""The common options of the benchmarks, and the broker that they measure.

Data go to a new folder below `--dir` (default: the system's folder for temporary files), which is
removed at the end. `--quick` divides the sizes by a hundred: it shows that a benchmark runs, but
its figures are meaningless.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks import wire
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_oracle import COMMAND

QUICK_DIVISOR = 100


@dataclass(frozen=True)
class Options:
    """`messages`, `rounds`: None: the benchmark's default. `worker`: the address of a warm worker
    for brokers that would start one on Spark.
    """

    messages: int | None = None
    rounds: int | None = None
    quick: bool = False
    folder: Path | None = None
    kafka: bool = False
    peer: str | None = None
    # Other brokers that speak Pulsar's protocol: URLs by name.
    pulsar: Mapping[str, str] = field(default_factory=dict)
    plot: Path | None = None
    worker: str | None = None

    def messages_or(self, default: int) -> int:
        if self.messages is not None:
            return self.messages
        return max(default // QUICK_DIVISOR, 1) if self.quick else default

    def rounds_or(self, default: int) -> int:
        if self.rounds is not None:
            return self.rounds
        return 1 if self.quick else default

    @contextmanager
    def fresh_folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="ledgerfold-bench-", dir=self.folder) as folder:
            yield Path(folder)

    @contextmanager
    def broker(self, *arguments: str, compactor: str = "off") -> Iterator[BrokerProcess]:
        """Starts a broker on new data, with a warm worker if needed."""
        with self.fresh_folder() as folder:
            if compactor == "local":
                compactor = self.worker or compactor
            told = ("--compactor", compactor, *arguments)
            with BrokerProcess(folder / "data", arguments=told) as broker:
                if compactor != "off":
                    broker.wait_for_compactor()
                yield broker

    @contextmanager
    def bare_server(self) -> Iterator[str]:
        """Starts the baseline on a new folder, in a separate process; yields its address."""
        with self.fresh_folder() as folder, wire.bare_server(folder) as address:
            yield address


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--messages", type=int, help="the number of messages; default: the benchmark's own"
    )
    parser.add_argument(
        "--rounds", type=int, help="the number of rounds; default: the benchmark's own"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a hundredth of the size and one round: only checks that it runs",
    )
    parser.add_argument(
        "--kafka",
        action="store_true",
        help="send, publish, read: also measure a Kafka topic, and print the ratio",
    )
    parser.add_argument(
        "--peer",
        metavar="COMMAND",
        default=os.environ.get(COMMAND),
        help="kafka-clean: the command that runs Kafka's own cleaner, with requests in JSON "
        f"lines, to print the ratio; default: the variable {COMMAND}",
    )
    parser.add_argument(
        "--pulsar",
        action="append",
        default=[],
        type=_named,
        metavar="NAME=URL",
        help="pulsar-door: a running broker to compare with, such as Pulsar=pulsar://HOST:6650; "
        "may be repeated",
    )
    parser.add_argument(
        "--plot", type=_folder, help="linear, many-keys: write a plot, as SVG, to this folder"
    )
    parser.add_argument(
        "--dir",
        type=_folder,
        help="the folder for data, which is deleted afterwards; default: the system's",
    )


def _folder(text: str) -> Path:
    """Created before the messages are, which takes a while."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return Path(text)


def _named(text: str) -> tuple[str, str]:
    name, separator, url = text.partition("=")
    if not (name and separator and url):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL")
    return name, url


def options_from(arguments: argparse.Namespace) -> Options:
    return Options(
        arguments.messages,
        arguments.rounds,
        arguments.quick,
        arguments.dir,
        arguments.kafka,
        arguments.peer,
        dict(arguments.pulsar),
        arguments.plot,
    )
