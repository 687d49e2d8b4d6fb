"""The Spark session: its sockets, and the garbage collection of its Python workers."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from ledgerfold.compactor.job.session import Session, SessionSettings, socket_settings

ENABLED, DIR = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"


def test_tasks_use_unix_sockets(session: Session) -> None:
    """Over TCP each task takes 40 ms longer."""
    assert session.context.parallelize([1, 2], 2).sum() == 3
    assert list(Path(session.context.getConf().get(DIR, "")).glob(".*.sock"))


def test_python_workers_do_not_visit_imported_modules(session: Session) -> None:
    """Spark has them collect garbage after each task."""
    frozen = session.context.parallelize([0], 1).map(lambda _: gc.get_freeze_count()).collect()
    assert frozen[0] > 50_000


@pytest.mark.parametrize("name", ["x" * 60, "missing"])
def test_without_a_usable_folder_for_sockets_tcp_is_used(tmp_path: Path, name: str) -> None:
    """The path of a socket has a limit that a folder may exceed; a broker could not create one."""
    if name != "missing":
        (tmp_path / name).mkdir()
    settings = SessionSettings("local[2]", tmp_path, socket_dir=tmp_path / name)
    assert socket_settings(settings) == {ENABLED: "false"}


def test_executors_elsewhere_use_tcp(tmp_path: Path) -> None:
    """A folder of this machine is not theirs."""
    settings = SessionSettings("spark://host:7077", tmp_path, socket_dir=tmp_path)
    assert socket_settings(settings) == {ENABLED: "false"}
