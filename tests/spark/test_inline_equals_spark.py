"""The inline engine writes the same files and manifests as Spark.

`python -m tests.spark.test_inline_equals_spark 2000` compares 2000 histories, and with `800 2000`
the 800 that follow them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.compactor.job import plan as plan_module
from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.inline import InlineEngine
from ledgerfold.compactor.job.session import Session, SessionSettings, start_session
from ledgerfold.compactor.kafka import plan as kafka_plan_module
from tests.support.engine_histories import KINDS, OWN, history
from tests.support.property_tests import examples

# Tasks so small that a short log is spread over several of each kind.
SMALL = {
    plan_module: ("SOLO_BYTES", "SCAN_TASK_KEY_BYTES", "MESSAGE_TASK_BYTES", "BUCKET_BYTES"),
    kafka_plan_module: ("SOLO_BYTES", "TASK_BYTES", "BUCKET_BYTES"),
}
SMALL_BYTES = 1_000


def compare(session: Session, kind: str, seed: int) -> None:
    """Raises AssertionError if the results of a history differ."""
    with tempfile.TemporaryDirectory() as folder:
        engines: dict[str, Engine] = {"spark": session, "inline": InlineEngine()}
        left, right = (
            history(engine, Path(folder, name), kind, seed) for name, engine in engines.items()
        )
    assert left.files.keys() == right.files.keys()
    assert left == right


def make_small(patch: pytest.MonkeyPatch) -> None:
    for module, names in SMALL.items():
        for name in names:
            patch.setattr(module, name, SMALL_BYTES if name != "SOLO_BYTES" else 0)
    for name in ("BUCKET_KEY_BYTES", "COPY_TASK_BYTES"):
        patch.setattr(plan_module, name, SMALL_BYTES)
    # Makes runs look up keys and keep segments.
    patch.setattr(plan_module, "SCANNED_SHARE_MAX", 0.9)


@pytest.mark.parametrize("is_small", [False, True], ids=["one task", "many tasks"])
@pytest.mark.parametrize("kind", KINDS)
def test_inline_equals_spark(
    session: Session, monkeypatch: pytest.MonkeyPatch, kind: str, is_small: bool
) -> None:
    """Covers every strategy, a user's class, deletion vectors, and rounds of Kafka's cleaner."""
    if is_small:
        make_small(monkeypatch)

    @settings(max_examples=examples(2 if kind == OWN else 4), deadline=None)
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        compare(session, kind, seed)

    check()


def main(histories: int, first: int = 0) -> None:
    """Compares that many histories of all kinds, half of them spread over many tasks, from the seed
    `first` on.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        session = start_session(SessionSettings("local[2]", Path(folder)))
        try:
            for at in range(histories):
                if at == histories // 2:
                    make_small(patch)
                seed = first + at
                compare(session, list(KINDS)[seed % len(KINDS)], seed)
                if at % 100 == 99 or at == histories - 1:
                    print(f"{at + 1} histories are equal, from seed {first} on", flush=True)
        finally:
            session.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
