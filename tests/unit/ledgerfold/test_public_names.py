"""Tests the names of `import ledgerfold`, and which modules it does not load."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import ledgerfold
from ledgerfold.version import __version__
from tests.support.command_line import ledgerfold as command_line
from tests.tidy import ROOT

PUBLIC: list[str] = vars(ledgerfold)["__all__"]
# Names of Pulsar's Python client that a program uses which only changes its import statement.
PULSAR_NAMES = {
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerType",
    "InitialPosition",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "Reader",
    "Result",
    "TableView",
}


pytestmark = pytest.mark.process


def python(program: str) -> str:
    """Returns the output of a fresh interpreter in a user's environment."""
    environment = dict(os.environ)
    environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_every_public_name_exists() -> None:
    """And each is offered for completion."""
    for name in PUBLIC:
        assert getattr(ledgerfold, name) is not None
    assert set(PUBLIC) <= set(dir(ledgerfold))
    assert set(PUBLIC) > PULSAR_NAMES


def test_an_unknown_name_raises() -> None:
    """The error is Python's."""
    with pytest.raises(AttributeError, match="module 'ledgerfold' has no attribute 'Schemer'"):
        _ = ledgerfold.Schemer  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "module", ["storage.ledger", "compactor.job.tasks", "errors", "version", "broker.cli.main"]
)
def test_modules_that_need_no_client_import_none(module: str) -> None:
    """Spark's Python workers, readers of files and the command line's help start quickly."""
    program = (
        f"import sys, ledgerfold.{module}\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'grpc' "
        "or name.startswith('ledgerfold.broker.client')])"
    )
    assert python(program) == "[]\n"


@pytest.mark.parametrize(
    "statement",
    [
        "from ledgerfold import Client",
        "import ledgerfold; ledgerfold.MessageId",
        "import ledgerfold; ledgerfold.aio",
        "import ledgerfold.admin",
        "from ledgerfold.testing import Broker",
    ],
)
def test_fork_support_of_grpc_is_set_before_its_import(statement: str) -> None:
    """However the client is imported; the user's environment takes precedence."""
    ask = "import os; print(os.environ.get('GRPC_ENABLE_FORK_SUPPORT'))"
    watch = (
        "import sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'grpc': import os; print(os.environ.get('GRPC_ENABLE_FORK_SUPPORT'))\n"
        "sys.meta_path.insert(0, Watch())\n"
    )
    assert python(f"{watch}{statement}").splitlines() in (["0"], [])
    assert python(f"{statement}\n{ask}") == "0\n"
    own = "import os; os.environ['GRPC_ENABLE_FORK_SUPPORT'] = 'True'\n"
    assert python(f"{own}{statement}\n{ask}") == "True\n"


def test_the_version_is_stated_once() -> None:
    """Compares the module, the command line and the file that packaging reads."""
    assert ledgerfold.__version__ == __version__
    assert command_line("--version").out == f"ledgerfold {__version__}\n"
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(.*?)\]", changelog, re.MULTILINE)[0] == __version__
