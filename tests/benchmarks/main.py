"""scripts/bench: runs benchmarks and prints their figures.

    scripts/bench                     lists them
    scripts/bench serve publish       runs these two, and prints a table for each
    scripts/bench all --json          runs all, and prints one JSON object per line
    scripts/bench publish --quick     checks that it runs; its figures mean nothing

A benchmark is a module of this folder with `run(options)`, which returns a Report; its docstring
says what it measures, and against which baseline. Each starts the broker that it measures.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from types import ModuleType

from tests.benchmarks import options
from tests.support.processes import clean_up_when_terminated

BENCHMARKS = (
    "serve",
    "cold",
    "pulsar-door",
    "publish",
    "send",
    "small-entries",
    "read",
    "command-line",
    "compact-small",
    "inline",
    "compact-large",
    "linear",
    "cost",
    "many-keys",
    "beside",
    "strategic",
    "kafka-clean",
    "memory",
    "unread",
    "checks",
    "what-if",
    "stalls",
    "wide",
    "crowd",
    "snapshots",
    "frames",
)


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"tests.benchmarks.{name.replace('-', '_')}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Runs benchmarks and prints their figures. Without a name, lists them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_list(),
    )
    parser.add_argument("name", nargs="*", metavar="NAME", help="a benchmark, or all")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line, instead of tables"
    )
    options.add_to(parser)
    arguments = parser.parse_args()
    if not arguments.name:
        parser.print_help()
        return 2
    unknown = set(arguments.name) - {*BENCHMARKS, "all"}
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    names = BENCHMARKS if "all" in arguments.name else arguments.name
    told = options.options_from(arguments)
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        report = module_of(name).run(told)
        print(report.json() if arguments.json else report.text() + "\n", flush=True)
    return 0


def _list() -> str:
    lines = ["benchmarks:"]
    for name in BENCHMARKS:
        summary = (module_of(name).__doc__ or "").splitlines()[0]
        lines.append(f"  {name:<14} {summary}")
    return "\n".join(lines)


if __name__ == "__main__":
    clean_up_when_terminated()
    sys.exit(main())
