"""Packages built from this checkout, in environments without the checkout.

The dependencies come from the environment that runs this test: nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

from ledgerfold.version import __version__
from tests.support import package_user

ROOT = Path(__file__).resolve().parents[2]
WHEEL = f"ledgerfold-{__version__}-py3-none-any.whl"
SDIST = f"ledgerfold-{__version__}.tar.gz"
_TIMEOUT_S = 110


def run(*command: str | Path, cwd: Path) -> str:
    """Returns the output of a command in a user's environment, without the checkout."""
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(root: Path, target: str, out: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out, cwd=root)


class Environment:
    """An environment with all dependencies, and without Ledgerfold."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        self.python = self.bin / "python"
        (packages,) = folder.glob("lib/python*/site-packages")
        self.packages = packages
        # Links to other folders are not followed: editable installations stay out.
        paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (packages / "needed.pth").write_text("\n".join(paths))

    def install(self, *what: str | Path) -> set[str]:
        """Installs without a package index; returns the new names, except for the metadata."""
        before = self._names()
        pip = (sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check")
        offline = ("--no-index", "--no-deps", "--no-build-isolation", "--quiet")
        run(*pip, "install", *offline, *what, cwd=self.packages)
        return self._names() - before

    def _names(self) -> set[str]:
        entries = {path.name for path in self.packages.iterdir()}
        return {name for name in entries if not name.endswith((".dist-info", "__pycache__"))}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the wheel and of the source distribution."""
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, "wheel", out)
    build(ROOT, "sdist", out)
    assert {path.name for path in out.iterdir()} == {WHEEL, SDIST}
    return out


@pytest.fixture(scope="module")
def installed(
    built: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Environment, set[str]]:
    """Returns an environment with the wheel, and the names that it added."""
    environment = Environment(tmp_path_factory.mktemp("installed"))
    return environment, environment.install(built / WHEEL)


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_install_adds_one_package_and_one_command(
    installed: tuple[Environment, set[str]],
) -> None:
    """One to import, and one command."""
    environment, added = installed
    assert added == {"ledgerfold"}
    shown = run(environment.bin / "ledgerfold", "--version", cwd=environment.packages)
    assert shown == f"ledgerfold {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [[], pytest.param(["compact"], marks=(pytest.mark.spark, pytest.mark.slow))]
)
def test_a_program_may_have_packages_of_the_same_names(
    installed: tuple[Environment, set[str]], tmp_path: Path, arguments: list[str]
) -> None:
    """It publishes, compacts and reads; it and Ledgerfold each find their own packages."""
    environment, _ = installed
    program = shutil.copy(package_user.__file__, tmp_path / "program.py")
    for name in package_user.OWN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    answer = json.loads(run(environment.python, program, *arguments, cwd=tmp_path))
    assert answer == {
        "values": ["11"] if arguments else ["10", "11"],
        "versions": [__version__] * 3,
        "own": [str(tmp_path)] * len(package_user.OWN),
        "ledgerfold": str(environment.packages),
    }


def test_the_source_distribution_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    """Also without any other files."""
    with tarfile.open(built / SDIST) as archive:
        # The first releases of Python 3.11 have no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    build(tmp_path / SDIST.removesuffix(".tar.gz"), "wheel", tmp_path)
    assert contents(tmp_path / WHEEL) == contents(built / WHEEL)


def test_the_contents_of_the_wheel(built: Path) -> None:
    """Types and the wire contract; PySpark only with the extra of that name."""
    files = contents(built / WHEEL)
    assert {"ledgerfold/py.typed", "ledgerfold/v1/admin.proto"} <= set(files)
    # A page needs more than its modules.
    page = "ledgerfold/broker/page"
    assert {f"{page}/templates/base.html", f"{page}/static/page.css"} <= set(files)
    metadata = message_from_bytes(files[f"ledgerfold-{__version__}.dist-info/METADATA"])
    required = metadata.get_all("Requires-Dist") or []
    assert {each.endswith("extra == 'spark'") for each in required if "pyspark" in each} == {True}
    # For compactions without Spark.
    for name in ("pyarrow", "numpy"):
        assert any(re.match(rf"{name}\W", each) and "extra" not in each for each in required)


def test_an_editable_install_adds_one_package(tmp_path: Path) -> None:
    """The folders beside `ledgerfold` in the checkout cannot be imported by their own names."""
    environment = Environment(tmp_path / "environment")
    environment.install("--editable", ROOT)
    look = (
        "import ledgerfold, pathlib, importlib.util as util;"
        "print(pathlib.Path(ledgerfold.__file__).resolve(),"
        f"[n for n in {package_user.OWN!r} if util.find_spec(n)])"
    )
    shown = run(environment.python, "-c", look, cwd=tmp_path)
    assert shown == f"{ROOT / 'ledgerfold' / '__init__.py'} []\n"
