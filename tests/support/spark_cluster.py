"""A standalone Spark cluster of this machine, from the pyspark wheel: a master and two workers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark

from tests.support.ports import free_port
from tests.support.processes import MARK, command, end, marked, new_mark, parent
from tests.support.waiting import WAIT_S, wait_until

_HOME = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
# JVMs that run for seconds need no slow compiler.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXECUTOR = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """Two workers of one core each. Ends with the `with` block, executors included.

    Each has a separate host: Spark starts no task a second time on the same host.
    """

    def __init__(self, folder: Path) -> None:
        self.mark, self._folder = new_mark(), folder
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._started = [
            self._start("master", "127.0.0.1", _MASTER, "--port", str(port)),
            *(
                self._start(
                    *(name, host, _WORKER, "--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(folder / name), self.url),
                )
                for name, host in (("one", "127.0.0.1"), ("two", "127.0.0.2"))
            ),
        ]

    def _start(self, name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self._folder / f"{name}.txt", "wb") as output:
            return subprocess.Popen(
                [
                    str(_HOME / "bin" / "spark-class"),
                    *arguments,
                    "--host",
                    host,
                    "--webui-port",
                    "0",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "SPARK_HOME": str(_HOME),
                    "SPARK_LOCAL_IP": host,
                    "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
                    MARK: self.mark,
                },
            )

    def __enter__(self) -> SparkCluster:
        output = self._folder / "master.txt"
        try:
            wait_until(
                lambda: output.read_text().count("Registering worker") == 2, "two workers", 120
            )
        except BaseException:
            end(self.mark)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        end(self.mark)
        for each in self._started:
            each.wait(WAIT_S)

    def executors(self) -> list[int]:
        """The processes that run tasks."""
        return [pid for pid in marked(self.mark) if EXECUTOR in command(pid)]

    def python_of(self, executor: int) -> list[int]:
        """The Python processes of an executor: the daemon, and those that it has forked."""
        found = [executor]
        for pid in found:
            found += [each for each in marked(self.mark) if parent(each) == pid]
        return found[1:]

    def busy_python(self) -> list[int]:
        """The Python processes of an executor that has any, or none."""
        return next(filter(None, map(self.python_of, self.executors())), [])
