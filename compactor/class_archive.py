"""The JVM's class-data archive: classes are parsed and verified once, and mapped by later starts.

The first worker of a machine starts without an archive; its JVM lists the classes that it loads.
Once nothing runs, another JVM loads these classes and writes the archive, at the lowest priority:
10 to 15 s of processor time, 550 MB of memory, 100 MB of disk. (With less than twice as much memory
or disk left, it does not start.) Spark's first job then ends 1.4 s after the start, not 2.2 s. (A
JVM that may write the archive itself, -XX:+RecordDynamicDumpInfo, takes 4.8 s.)

An archive fits one JVM build, set of jars and set of options. The JVM ignores an archive that does
not fit, and crashes on a damaged one: either is removed, and the next worker starts as the first.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext

from ledgerfold.compactor.java import Java
from ledgerfold.compactor.memory import free_memory_bytes
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files, write_file
from ledgerfold.storage.paths import absolute_path

_LIST_OPTION = "-XX:DumpLoadedClassList="
# An archive is not written with less memory and disk left: twice what that takes.
_FREE_MEMORY_MIN = 1100 * 1024 * 1024
_FREE_DISK_MIN = 200 * 1024 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClassArchive:
    """A class-data archive, which may not exist yet."""

    path: Path

    @property
    def exists(self) -> bool:
        return self.path.is_file()

    def java_options(self, class_list: Path) -> tuple[str, ...]:
        """Returns the options of a JVM that uses the archive, or else writes `class_list`."""
        if self.exists:
            return (f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto")
        return (f"{_LIST_OPTION}{class_list}",)

    def is_used(self, context: SparkContext) -> bool:
        """Returns whether Spark's JVM, which was started with the archive, has accepted it."""
        jvm: Any = context._jvm
        return "sharing" in str(jvm.java.lang.System.getProperty("java.vm.info"))

    def discard(self, files: Files, why: str) -> None:
        _log.warning("Removing the class-data archive %s: %s", self.path, why)
        with contextlib.suppress(DiskFailure):
            files.remove(self.path)


def class_archive(cache_dir: Path, java: Java) -> ClassArchive:
    """Returns the archive for this Java and this Spark, existing or not."""
    spark_home = Path(pyspark.__file__).parent
    identity = hashlib.sha256(f"{java.home}\0{spark_home}".encode()).hexdigest()[:8]
    name = f"spark-{pyspark.__version__}-java-{java.version}-{identity}.jsa"
    return ClassArchive(cache_dir / name)


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    root = environment.get("XDG_CACHE_HOME")
    return (absolute_path(root) if root else Path.home() / ".cache") / "ledgerfold"


class ArchiveWriter:
    """The JVM that writes an archive. Failures are only logged: the next start is slower, nothing
    else.
    """

    def __init__(self, archive: ClassArchive, files: Files) -> None:
        self._path, self._files = archive.path, files
        # Not named by our process id: a process of another container may have the same.
        self._temporary = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}.tmp")
        self._starting = threading.Lock()
        self._is_stopped = False
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, context: SparkContext, class_list: Path) -> None:
        """Writes the archive to a temporary file, then renames it. `context`: of the JVM that
        writes `class_list`.
        """
        # The JVM still appends to its own, in blocks: the last line may be incomplete.
        listed = class_list.with_suffix(".complete")
        try:
            with contextlib.closing(self._files.open_read(class_list)) as file:
                lines, newline, _ = file.pread(file.size_bytes, 0).rpartition(b"\n")
            write_file(listed, [lines + newline], self._files)
            self._files.make_dir(self._path.parent)
            self._remove_left_over()
            obstacle = self._obstacle()
            if obstacle:
                _log.info("No class-data archive is written: %s", obstacle)
                return
            # A folder that is not writable fails here, not after 10 s of the JVM.
            write_file(self._temporary, [], self._files)
            code = self._run(
                [
                    *_command(context),
                    "-Xshare:dump",
                    f"-XX:SharedClassListFile={listed}",
                    f"-XX:SharedArchiveFile={self._temporary}",
                ]
            )
            if code == 0:
                self._sync()
                self._files.replace(self._temporary, self._path)
                _log.info("Class-data archive written: %s", self._path)
            elif not self._is_stopped:
                _log.warning("No class-data archive was written: exit code %s", code)
        except (DiskFailure, OSError) as error:
            _log.warning("No class-data archive was written: %s", error)
        finally:
            self._remove_temporary()

    def stop(self) -> None:
        """Ends the JVM, if it runs. No other one is started."""
        with self._starting:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                # This process may end before the thread that writes does so.
                self._remove_temporary()

    def _obstacle(self) -> str:
        """Returns why no archive can be written; empty if nothing is known."""
        if os.pathsep in str(self._path):
            advice = "XDG_CACHE_HOME may name another folder"
            return f"Java takes {self._path} for several paths; {advice}"
        if self._files.free_bytes(self._path.parent) < _FREE_DISK_MIN:
            return f"the disk of {self._path.parent} is almost full"
        free = free_memory_bytes()
        if free is not None and free < _FREE_MEMORY_MIN:
            return f"only {free} bytes of memory are left"
        return ""

    def _remove_left_over(self) -> None:
        """Removes temporary files of killed workers. One that writes now gets an error."""
        for name in self._files.listdir(self._path.parent):
            if name.startswith(f"{self._path.name}.") and name.endswith(".tmp"):
                self._files.remove(self._path.with_name(name))

    def _sync(self) -> None:
        """Makes the file durable: after a power loss, a part of it would crash every later JVM."""
        size_bytes = self._files.size(self._temporary)
        with contextlib.closing(self._files.open_append(self._temporary, size_bytes)) as file:
            file.sync()

    def _remove_temporary(self) -> None:
        with contextlib.suppress(DiskFailure):
            self._files.remove(self._temporary)

    def _run(self, command: list[str]) -> int | None:
        with self._starting:
            if self._is_stopped:
                return None
            nice = ("nice", "-n", "19") if shutil.which("nice") else ()
            self._process = subprocess.Popen([*nice, *command], stdin=subprocess.DEVNULL)
        # If memory runs out, Linux ends it before the worker. Other systems have no such file.
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/oom_score_adj").write_text("1000")
        return self._process.wait()


def _command(context: SparkContext) -> list[str]:
    """Returns the program, the class path and the options of Spark's JVM: an archive fits only
    these.
    """
    jvm: Any = context._jvm
    lang = jvm.java.lang
    new_array: Any = context._gateway.new_array  # type: ignore[union-attr]
    # NOTE: by reflection, because py4j does not see the methods of the bean's hidden class.
    arguments = lang.Class.forName("java.lang.management.RuntimeMXBean").getMethod(
        "getInputArguments", new_array(lang.Class, 0)
    )
    bean = lang.management.ManagementFactory.getRuntimeMXBean()
    options = map(str, arguments.invoke(bean, new_array(lang.Object, 0)))
    return [
        str(Path(lang.System.getProperty("java.home")) / "bin" / "java"),
        *("-cp", lang.System.getProperty("java.class.path")),
        *(option for option in options if not option.startswith(_LIST_OPTION)),
    ]
