"""The examples in docstrings: found by their prompts, and run as they are written.

An example may use `folder`, a new folder. One that connects to DOCUMENTED_ADDRESS gets a broker of
its own there, without a compactor (tests/grpc/test_client_examples.py); all others need nothing
(tests/unit/test_examples.py).

    >>> DOCUMENTED_ADDRESS == "127.0.0.1:7650"
    True
"""

from __future__ import annotations

import doctest
import importlib
import io
from pathlib import Path

from tests.tidy import PRODUCT, Module, modules

DOCUMENTED_ADDRESS = "127.0.0.1:7650"
_PROMPT = ">>> "
# What shows that an example needs a broker: there, or one of its own.
_BROKERS = (f'("{DOCUMENTED_ADDRESS}"', "with Broker(")


def with_examples(*, connecting: bool) -> list[str]:
    """The modules of the product and of what tests share that hold examples of this kind."""
    return [
        module.name
        for module in modules(*PRODUCT, "tests")
        if _PROMPT in module.source
        and not Path(module.path).name.startswith("test_")
        and _connects(module) == connecting
    ]


def _connects(module: Module) -> bool:
    return any(
        line.lstrip().startswith((_PROMPT, "... ")) and any(broker in line for broker in _BROKERS)
        for line in module.source.splitlines()
    )


def failures(name: str, folder: Path, address: str = DOCUMENTED_ADDRESS) -> str:
    """Returns the examples of a module that fail, described; empty if all pass."""
    said = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(importlib.import_module(name)):
        for example in test.examples:
            example.source = example.source.replace(DOCUMENTED_ADDRESS, address)
        test.globs["folder"] = folder
        runner.run(test, out=said.write)
    return said.getvalue()
