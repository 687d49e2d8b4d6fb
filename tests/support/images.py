"""Images of the Dockerfile, for tests that build and run them.

They take minutes and a network, so they are built only if LEDGERFOLD_IMAGE_BASE names the image to
build on (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.tidy import ROOT

_BASE = "LEDGERFOLD_IMAGE_BASE"
_BUILD_S, _COMMAND_S = 1500.0, 120.0
MARKS = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(2000)]


def output_of(tool: str, *arguments: str, timeout_s: float = _COMMAND_S) -> str:
    """Returns what a command prints. Raises CalledProcessError."""
    done = subprocess.run(
        [tool, *arguments], stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=True
    )
    return done.stdout.strip()


def built_image(tool: str, spark: str = "no") -> str:
    """Builds an image by buildah or podman. Returns its tag. `spark`: yes or no. Skips the test."""
    base = os.environ.get(_BASE)
    if base is None:
        pytest.skip(f"{_BASE} names no image to build on: see CONTRIBUTING.md")
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}: apt-get install {tool}")
    tag = f"localhost/ledgerfold-test-spark-{spark}"
    options = ["--isolation=chroot", "--format=docker", "--layers", f"--tag={tag}"]
    arguments = [f"--build-arg=BASE={base}", f"--build-arg=SPARK={spark}"]
    output_of(tool, "build", *options, *arguments, str(ROOT), timeout_s=_BUILD_S)
    return tag
