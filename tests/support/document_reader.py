"""Reads a document from top to end, as a user does, and follows it.

In a new folder, with the terminals that README.md opens, it runs commands in bash, writes files,
runs Python snippets, and compares what they print with the document. `serve` runs in a separate
terminal; a second `serve` ends the first broker. A command that needs a broker gets the one of
README.md started, and one that needs the data directory exclusively gets it ended.

The documents use 127.0.0.1:7650, the product's default. If another process or reader uses it, the
text is read with another port.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple, Self

from tests.support import processes
from tests.support.documents import COMMANDS, Block, Step
from tests.support.ports import free_port, is_free

SERVE = "ledgerfold serve --data data"
PORTS = (7650, 6650, 8080, 9464, 7680)
# Spark's queries may have the machine to themselves, or not.
_STOP_S, _COMMAND_S = 60.0, 300.0
_SERVES = re.compile(r"(?:\w+=\S* )*ledgerfold serve\b")
# These take the data directory.
_ALONE = re.compile(r"ledgerfold (?:compact --data|verify|repair)\b")
# All others have no broker.
_NEEDS_NONE = re.compile(r"(?!.*\bledgerfold )|.*ledgerfold what-if --(?:csv|jsonl)\b", re.DOTALL)
# A program's Spark that ends soon: as the compactor's (compactor/job/session.py).
_SHORT_SPARK = (
    "PYSPARK_SUBMIT_ARGS=\"--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' "
    '--conf spark.ui.enabled=false pyspark-shell" '
)
# Too old for Spark: a broker with `--compactor auto`, the default, compacts inline.
_OLD_JAVA = ".java-11"
_PRINTS = re.compile(r"print\(.*\)  # (.*)")


class Done(NamedTuple):
    """A command or a snippet, and its output."""

    what: str
    out: str


class Reader:
    """A context manager; at its end every process that it started has ended."""

    def __init__(self, folder: Path, passes_over: Mapping[str, str]) -> None:
        """`passes_over`: why commands with these words are skipped."""
        self.folder, self._passes_over = folder, passes_over
        self._ending = ExitStack()
        self._mark = processes.new_mark()
        self._ports = dict[int, int]()
        self._brokers_with_java = 0
        self._broker: subprocess.Popen[str] | None = None
        self._log = folder / "broker.log"

    def __enter__(self) -> Self:
        self._ending.callback(processes.end, self._mark)
        self._ending.callback(self.stop)
        self._ports = _ports_of(self._ending)
        # As in the checkout, whose environment the tests use.
        (self.folder / ".venv").symlink_to(sys.prefix)
        _write_old_java(self.folder / _OLD_JAVA)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ending.close()

    # -- reading ---------------------------------------------------------------------------

    def read(self, blocks: Iterable[Block], *, brokers_with_java: int = 0) -> list[Done]:
        """Raises AssertionError at the first difference.

        So many brokers of the document, the first ones, find a Java that Spark can use. All other
        processes find one that is too old, except snippets that use Spark.
        """
        self._brokers_with_java = brokers_with_java
        done = list[Done]()
        tests = list[Block]()
        for block in blocks:
            if block.file is not None:
                (self.folder / block.file).write_text(self.here(block.text))
            elif block.language in COMMANDS:
                done += [each for step in block.steps for each in self._do(step)]
            elif block.language == "python":
                if "def test_" in block.text:
                    tests.append(block)
                else:
                    done.append(self._run_snippet(block))
        if tests:
            done.append(self._run_tests(tests))
        return done

    def _do(self, step: Step) -> list[Done]:
        if any(words in step.command for words in self._passes_over):
            return []
        if _SERVES.match(step.command):
            self.stop()
            self._serve(step.command)
            return []
        if _ALONE.match(step.command):
            self.stop()
        elif not _NEEDS_NONE.match(step.command):
            self._need_broker()
        out = self._run(self.here(step.command))
        if step.shown:
            shown = [line.rstrip() for line in out.splitlines()]
            assert shown == [self.here(line) for line in step.shown], f"{step.command}\n{out}"
        return [Done(step.command, out)]

    def _run_snippet(self, block: Block) -> Done:
        self._need_broker()
        path = self.folder / f"line_{block.line}.py"
        path.write_text(self.here(block.text))
        has_spark = "pyspark" in block.text
        command = f"{_SHORT_SPARK if has_spark else ''}python {path.name}"
        out = self._run(command, has_java=has_spark)
        lines = iter(out.splitlines())
        for expected in _PRINTS.findall(block.text):
            assert expected in lines, f"{expected!r} is not printed, in its turn:\n{out}"
        return Done(block.text, out)

    def _run_tests(self, blocks: Iterable[Block]) -> Done:
        """Runs the files as tests of a user with pytest; they start brokers themselves."""
        tests = self.folder / "tests"
        tests.mkdir(exist_ok=True)
        for block in blocks:
            (tests / f"test_line_{block.line}.py").write_text(block.text)
        out = self._run("python -m pytest -q -p no:cacheprovider -p no:asyncio -W error tests")
        return Done("pytest", out)

    def here(self, text: str) -> str:
        """Returns the text with the ports that the broker has here."""
        for port, other in self._ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{other}")
        return text

    # -- terminals -------------------------------------------------------------------------

    def _run(self, command: str, *, has_java: bool = False) -> str:
        """Runs a command that must succeed. Returns its standard output."""
        pipe = subprocess.PIPE
        with self._start(command, stdout=pipe, stderr=pipe, has_java=has_java) as process:
            out, err = process.communicate(timeout=_COMMAND_S)
        assert process.returncode == 0, f"{command}\n{out}{err}{self._broker_said()}"
        return out

    def _start(
        self, command: str, *, stdout: int, stderr: int | IO[str], has_java: bool
    ) -> subprocess.Popen[str]:
        """Starts a command in a new terminal with the environment activated."""
        own = f"{sys.prefix}/bin"
        path = [each for each in os.environ["PATH"].split(os.pathsep) if each != own]
        environment = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "LEDGERFOLD_URL": self.here("127.0.0.1:7650"),
            processes.MARK: self._mark,
        }
        if not has_java:
            java = self.folder / _OLD_JAVA
            path.insert(0, str(java / "bin"))
            environment |= {"PATH": os.pathsep.join(path), "JAVA_HOME": str(java)}
        # The tests' own.
        for name in ("GRPC_ENABLE_FORK_SUPPORT", "PYTHONPATH"):
            environment.pop(name, None)
        return subprocess.Popen(
            ["bash", "-c", f"source .venv/bin/activate\n{command}"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    # -- the broker ------------------------------------------------------------------------

    def _need_broker(self) -> None:
        if self._broker is None:
            self._serve(SERVE)

    def _serve(self, command: str) -> None:
        """Starts the broker and waits until it is ready."""
        command = f"{command} --listen 127.0.0.1:7650" if self._ports else command
        started = self.here(command).replace("ledgerfold serve", "exec ledgerfold serve", 1)
        has_java = self._brokers_with_java > 0
        self._brokers_with_java -= 1
        with self._log.open("a") as log:
            broker = self._start(started, stdout=subprocess.PIPE, stderr=log, has_java=has_java)
        assert broker.stdout is not None
        line = broker.stdout.readline()
        if not line:
            broker.communicate()
            raise AssertionError(f"{command}{self._broker_said()}")
        self._broker = broker
        assert json.loads(line)["listen"] == self.here("127.0.0.1:7650")

    def stop(self) -> None:
        """Stops the broker as Ctrl-C in its terminal does."""
        broker, self._broker = self._broker, None
        if broker is not None:
            with broker:
                broker.terminate()
                assert broker.wait(_STOP_S) == 0, self._broker_said()

    def _broker_said(self) -> str:
        said = self._log.read_text()[-4000:] if self._log.exists() else ""
        return f"\nThe broker said:\n{said}"


def _write_old_java(folder: Path) -> None:
    """Writes what the search for a Java reads of a runtime."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.touch(0o755)
    (folder / "release").write_text('JAVA_VERSION="11.0.2"\n')


def _ports_of(ending: ExitStack) -> dict[int, int]:
    """Returns the ports of the documents, or others if these are in use."""
    path = Path(tempfile.gettempdir(), f"ledgerfold-ports-{os.getuid()}.lock")
    lock = ending.enter_context(path.open("w"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        is_alone = False
    else:
        is_alone = True
    return {port: free_port() for port in PORTS if not (is_alone and is_free(port))}
