"""The checkpoint files next to exported folders, written by several exports at once.

Until this test one export had written them after another, and entries of others were lost.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ledgerfold.broker.cli.data.export_kafka import RECOVERY_POINT_FILE, write_checkpoints
from ledgerfold.broker.kafka.log.checkpoint_file import CHECKPOINT_FILE, read_checkpoint
from ledgerfold.v1.kafka_pb2 import DescribeLogResponse, KafkaSegmentInfo


def test_exports_at_once_keep_the_entries_of_one_another(tmp_path: Path) -> None:
    log = DescribeLogResponse(segments=[KafkaSegmentInfo()], log_end_offset=9, checkpoint=4)

    def write(topic: int) -> None:
        for partition in range(10):
            write_checkpoints(tmp_path / f"topic{topic}-{partition}", log)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    for name, offset in ((CHECKPOINT_FILE, 4), (RECOVERY_POINT_FILE, 9)):
        found = read_checkpoint((tmp_path / name).read_text(), name)
        assert len(found) == 40
        assert set(found.values()) == {offset}
