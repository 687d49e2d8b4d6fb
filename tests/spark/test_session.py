"""The Spark session: its sockets, and the imports and garbage collection of its Python workers."""

from __future__ import annotations

import gc
from pathlib import Path

import pyspark

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


def test_python_workers_import_the_installed_pyspark(session: Session) -> None:
    """From Spark's archive of it, each daemon would compile it, for a third of a second."""
    paths = session.context.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert paths == [pyspark.__file__]


def test_a_long_path_of_the_folder_does_not_matter(tmp_path: Path) -> None:
    """The path of a socket has a limit that a data directory may exceed."""
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    settings = socket_settings(SessionSettings("local[2]", folder))
    assert settings[ENABLED] == "true"
    assert len(settings[DIR]) < 50
    assert Path(settings[DIR]).samefile(folder)


def test_executors_elsewhere_use_tcp(tmp_path: Path) -> None:
    """A folder of this machine is not theirs."""
    settings = SessionSettings("spark://host:7077", tmp_path)
    assert socket_settings(settings) == {ENABLED: "false"}
