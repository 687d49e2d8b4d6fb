"""Kafka's own cleaner on the same batches, in a separate process, one cleaning at a time.

The process is one of tests/support/kafka_oracle.py. Its log consists of files that Kafka could have
written, which it opens as after a crash; time is that of the cleaner's pass alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ledgerfold.storage.kafka.batch import read_batch_header
from tests.support.kafka_oracle import KafkaOracle

# Kafka's limit of a segment is 1 GiB.
_SEGMENT_BYTES = 512 * 1024 * 1024
_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def written(batches: Iterable[bytes], folder: Path) -> Iterator[bytes]:
    """Yields the same batches; `seconds` excludes the time for writing them."""
    folder.mkdir(parents=True)
    file, size_bytes = None, _SEGMENT_BYTES
    try:
        for batch in batches:
            if file is None or size_bytes + len(batch) > _SEGMENT_BYTES:
                if file is not None:
                    file.close()
                first = read_batch_header(batch).base_offset
                file, size_bytes = (folder / f"{first:020d}.log").open("wb"), 0
            size_bytes += file.write(batch)
            yield batch
    finally:
        if file is not None:
            file.close()


def seconds(oracle: KafkaOracle, folder: Path, log: str) -> float:
    """Measures one pass over the topic, which is completely dirty. `log`: a unique name."""
    home = oracle.log_dir / log
    home.mkdir()
    for file in folder.iterdir():
        os.link(file, home / file.name)
    oracle("create", log=log, config=_CONFIG)
    oracle("roll", log=log)
    began = time.perf_counter()
    turn = oracle("clean")
    taken = time.perf_counter() - began
    assert turn["log"] == log, turn
    oracle("delete", log=log)
    return taken
