"""The start of Spark in the worker, with its temporary folder and its archive."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import pyspark

from ledgerfold.compactor.class_archive import ClassArchive, dump_archive
from ledgerfold.compactor.java import Java
from ledgerfold.compactor.job.engine import SPARK, Engine
from ledgerfold.compactor.job.executors import check_executors
from ledgerfold.compactor.job.session import Session, SessionSettings, end_jvm, start_session
from ledgerfold.compactor.starting import EngineStart
from ledgerfold.compactor.warm_up import warm_up
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.storage.files import REAL
from ledgerfold.v1.compactor_pb2 import GetCompactorInfoResponse

_log = logging.getLogger(__name__)


@dataclass
class SparkStart(EngineStart):
    """Spark. `local_dir` is used by this worker only and is emptied."""

    master: str
    local_dir: Path
    java: Java
    archive: ClassArchive
    name = SPARK
    _is_dead: bool = False
    _archiving: threading.Lock = field(default_factory=threading.Lock)

    def info(self) -> GetCompactorInfoResponse:
        return GetCompactorInfoResponse(
            version=version("ledgerfold"),
            spark_version=pyspark.__version__,
            java_version=self.java.version,
            spark_master=self.master,
            pid=os.getpid(),
            engine=SPARK,
        )

    def start(self) -> Engine:
        # Remove the files of a killed worker.
        REAL.remove_dir(self.local_dir)
        REAL.make_dir(self.local_dir)
        # Temporary files of this process and its children are removed with the folder.
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.local_dir)
        try:
            session = start_session(
                SessionSettings(self.master, self.local_dir, self.archive.java_options)
            )
            if not session.is_local:
                check_executors(session.context)
        except CompactorUnavailable:
            self.abandon()
            raise
        except Exception as error:
            self.abandon()
            _log.exception("Spark did not start")
            raise CompactorUnavailable(
                f"Spark did not start on Java {self.java.version} ({self.java.home}): "
                f"{str(error).partition(chr(10))[0]} The compactor's log has the output of Java."
            ) from error
        return session

    def warm_up(self, engine: Engine) -> None:
        assert isinstance(engine, Session)
        warm_up(engine, self.local_dir / "warm-up", REAL, time.time)

    def after_start(self, engine: Engine) -> None:
        assert isinstance(engine, Session)
        with self._archiving:
            if not self._is_dead and not self.archive.exists:
                dump_archive(engine.context, self.archive, REAL)

    def ended(self, engine: Engine) -> str:
        assert isinstance(engine, Session)
        how = engine.jvm_end()
        self._is_dead = True
        return f"Spark's JVM ended ({how})"

    def abandon(self) -> None:
        end_jvm()

    def clean_up(self) -> None:
        REAL.remove_dir(self.local_dir)
