"""The search for a Java runtime that Spark can use.

The order is that of Spark's launcher: JAVA_HOME, else `java` on PATH, which is also used if
JAVA_HOME is unsuitable. The version comes from the runtime's `release` file, which every JDK since
9 has, because starting a JVM to ask for its version takes a quarter of a second. A runtime without
that file is started.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from ledgerfold.storage.errors import CompactorUnavailable

VERSION_MIN = 17
# Spark's launcher adds it; runtimes reduced with jlink often lack it.
_MODULE_NEEDED = "jdk.incubator.vector"
_INSTALL = (
    f"Install Java {VERSION_MIN} or later (Debian, Ubuntu: apt install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17; others: https://adoptium.net), or set JAVA_HOME to it."
)
_log = logging.getLogger(__name__)
_VERSION = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True)
class Java:
    home: Path
    version: str


def find_java(environment: MutableMapping[str, str]) -> Java:
    """Finds a suitable Java. Raises CompactorUnavailable with the remedy.

    Removes an unsuitable JAVA_HOME from `environment`, for Spark's launcher, if PATH has a suitable
    Java.
    """
    home = environment.get("JAVA_HOME")
    if not home:
        return _on_path(environment)
    try:
        return _checked(Path(home) / "bin" / "java")
    except CompactorUnavailable as unsuitable:
        try:
            on_path = _on_path(environment)
        except CompactorUnavailable:
            raise unsuitable from None
        _log.warning("Using %s instead of JAVA_HOME: %s", on_path.home, unsuitable)
        del environment["JAVA_HOME"]
        return on_path


def _on_path(environment: Mapping[str, str]) -> Java:
    executable = shutil.which("java", path=environment.get("PATH", ""))
    if executable is None:
        raise CompactorUnavailable(f"Spark needs Java, and none was found. {_INSTALL}")
    return _checked(Path(executable))


def _checked(executable: Path) -> Java:
    """Returns the Java of `executable`. Raises CompactorUnavailable if Spark cannot use it."""
    if not executable.is_file():
        home = executable.parent.parent
        raise CompactorUnavailable(f"JAVA_HOME is {home}, which has no bin/java. {_INSTALL}")
    home = executable.resolve().parent.parent
    release = _release(home)
    version = release.get("JAVA_VERSION") or _ask(executable)
    if _major(version) < VERSION_MIN:
        raise CompactorUnavailable(
            f"Spark needs Java {VERSION_MIN} or later; {executable} is Java {version}. " + _INSTALL
        )
    modules = release.get("MODULES", "")
    if modules and _MODULE_NEEDED not in modules.split():
        raise CompactorUnavailable(
            f"Spark cannot start on {home}: this Java lacks the module {_MODULE_NEEDED}. "
            + _INSTALL
        )
    return Java(home, version)


def _release(home: Path) -> dict[str, str]:
    try:
        lines = (home / "release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name: value.strip().strip('"') for name, _, value in pairs}


def _ask(executable: Path) -> str:
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompactorUnavailable(f"{executable} does not run: {error}. {_INSTALL}") from error
    match = _VERSION.search(answer.stderr)
    if match is None:
        raise CompactorUnavailable(f"{executable} does not report its version. {_INSTALL}")
    return match.group(1)


def _major(version: str) -> int:
    """Returns the major version: 17 for "17.0.15", 8 for "1.8.0_412"."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
