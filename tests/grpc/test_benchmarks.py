"""The benchmarks run. Their results are for people: no figure is asserted here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.main import BENCHMARKS, module_of
from tests.benchmarks.options import Options
from tests.support.compactor_process import CompactorProcess

WITH_SPARK = (
    "beside",
    "inline",
    "read",
    "compact-small",
    "compact-large",
    "cold",
    "cost",
    "frames",
    "kafka-clean",
    "linear",
    "many-keys",
    "pulsar-door",
    "small-entries",
    "strategic",
    "what-if",
)
# Of those with a worker, one run, one request and one cleaning suffice.
SHOWN = ("compact-small", "kafka-clean", "pulsar-door", "what-if")


@pytest.mark.parametrize("name", [each for each in BENCHMARKS if each not in WITH_SPARK])
def test_a_benchmark_prints_its_figures(name: str, tmp_path: Path) -> None:
    """With small sizes, each prints a table and JSON with the same figures."""
    _check(name, Options(quick=True, folder=tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_a_benchmark_with_a_worker_prints_its_figures(
    name: str, tmp_path: Path, compactor: CompactorProcess
) -> None:
    """The worker is the session's, which is warm."""
    _check(name, Options(quick=True, folder=tmp_path, worker=compactor.address))


def _check(name: str, options: Options) -> None:
    report = module_of(name).run(options)
    figures = json.loads(report.json())["figures"]
    assert figures
    for figure in figures:
        assert figure["value"] > 0, figure
        assert figure["name"] in report.text()


def test_every_benchmark_says_what_it_measures() -> None:
    """The list of scripts/bench consists of the modules' docstrings."""
    for name in BENCHMARKS:
        assert (module_of(name).__doc__ or "").strip()
