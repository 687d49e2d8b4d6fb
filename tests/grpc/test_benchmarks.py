"""The benchmarks run. Their results are for people: no figure is asserted here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.main import BENCHMARKS, module_of
from tests.benchmarks.options import Options

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
    "small-entries",
    "strategic",
    "what-if",
)
# For those that start a worker, one run and one request suffice.
SHOWN = ("compact-small", "kafka-clean", "what-if")
CASES = [
    pytest.param(name, marks=[pytest.mark.spark, pytest.mark.slow] if name in WITH_SPARK else ())
    for name in BENCHMARKS
    if name not in WITH_SPARK or name in SHOWN
]


@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_prints_its_figures(name: str, tmp_path: Path) -> None:
    """With small sizes, each prints a table and JSON with the same figures."""
    report = module_of(name).run(Options(quick=True, folder=tmp_path))
    figures = json.loads(report.json())["figures"]
    assert figures
    for figure in figures:
        assert figure["value"] > 0, figure
        assert figure["name"] in report.text()


def test_every_benchmark_says_what_it_measures() -> None:
    """The list of scripts/bench consists of the modules' docstrings."""
    for name in BENCHMARKS:
        assert (module_of(name).__doc__ or "").strip()
