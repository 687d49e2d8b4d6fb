"""Tests which Java the worker finds, and its error if there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.compactor.java import find_java
from ledgerfold.storage.errors import CompactorUnavailable
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.process


def _java(home: Path, release: str = "", prints: str = "") -> dict[str, str]:
    """An environment whose JAVA_HOME says that."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{prints}' >&2\n")
    executable.chmod(0o755)
    if release:
        (home / "release").write_text(release)
    return {"JAVA_HOME": str(home)}


def test_the_java_version_is_read_from_the_release_file(tmp_path: Path) -> None:
    """No JVM is started to ask."""
    found = find_java(_java(tmp_path, 'IMPLEMENTOR="X"\nJAVA_VERSION="21.0.4"\n'))
    assert (found.home, found.version) == (tmp_path, "21.0.4")


def test_a_java_without_a_release_file_is_started_for_its_version(tmp_path: Path) -> None:
    """Its -version line counts."""
    environment = _java(tmp_path, prints='openjdk version "17.0.15" 2025-04-15')
    assert find_java(environment).version == "17.0.15"


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_412"])
def test_an_old_java_is_refused(tmp_path: Path, version: str) -> None:
    """The error names the version found and what to install."""
    with pytest.raises(CompactorUnavailable, match=rf"is Java {version}.*Install Java 17"):
        find_java(_java(tmp_path, f'JAVA_VERSION="{version}"\n'))


def test_a_java_without_the_modules_of_spark_is_refused(tmp_path: Path) -> None:
    """A runtime that was cut down gets a message instead of a JVM that does not start."""
    release = 'JAVA_VERSION="25"\nMODULES="java.base java.logging"\n'
    with pytest.raises(CompactorUnavailable, match=r"lacks the module jdk\.incubator\.vector"):
        find_java(_java(tmp_path, release))


@pytest.mark.parametrize("release", ['JAVA_VERSION="11.0.2"\n', None])
def test_an_unsuitable_java_home_does_not_hide_a_suitable_java(
    tmp_path: Path, release: str | None
) -> None:
    """PATH's Java is used, and JAVA_HOME, which Spark's launcher prefers, is changed."""
    environment = {"JAVA_HOME": str(tmp_path / "nothing")}
    if release is not None:
        environment = _java(tmp_path / "old", release)
    _java(tmp_path / "good", 'JAVA_VERSION="21.0.4"\n')
    environment["PATH"] = str(tmp_path / "good" / "bin")
    found = find_java(environment)
    assert (found.home, found.version) == (tmp_path / "good", "21.0.4")
    assert "JAVA_HOME" not in environment


def test_a_suitable_java_home_is_preferred(tmp_path: Path) -> None:
    """Setting it is a deliberate choice."""
    environment = _java(tmp_path / "set", 'JAVA_VERSION="17.0.1"\n')
    _java(tmp_path / "other", 'JAVA_VERSION="21.0.4"\n')
    environment["PATH"] = str(tmp_path / "other" / "bin")
    assert find_java(environment).home == tmp_path / "set"
    assert environment["JAVA_HOME"] == str(tmp_path / "set")


def test_the_error_names_java_home_if_no_java_is_suitable(tmp_path: Path) -> None:
    """The user chose it."""
    environment = _java(tmp_path / "set", 'JAVA_VERSION="11.0.2"\n')
    _java(tmp_path / "other", 'JAVA_VERSION="1.8.0_412"\n')
    environment["PATH"] = str(tmp_path / "other" / "bin")
    with pytest.raises(CompactorUnavailable, match=r"set/bin/java is Java 11"):
        find_java(environment)


def test_without_java_the_process_says_so_and_exits_with_3(tmp_path: Path) -> None:
    """The broker shows its users one event, with the remedy."""
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    ended = subprocess.run(
        [sys.executable, "-m", "ledgerfold.compactor"],
        env={**environment, "PATH": str(tmp_path), "LEDGERFOLD_COMPACTOR_SECRET": "s"},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    event = json.loads(ended.stdout)
    assert ended.returncode == 3
    assert event["event"] == "unavailable"
    assert "Install Java 17" in event["message"]


def test_without_a_secret_the_process_says_what_to_set_and_exits_with_2() -> None:
    """Otherwise, any local process could make the worker read and remove files."""
    name = "LEDGERFOLD_COMPACTOR_SECRET"
    ended = subprocess.run(
        [sys.executable, "-m", "ledgerfold.compactor"],
        env={key: value for key, value in os.environ.items() if key != name},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.returncode == 2
    assert f"set {name} in the environment" in ended.stderr.decode()
