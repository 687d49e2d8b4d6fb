"""Finds the examples in docstrings by their prompts, and runs them.

An example may use `folder`, a new folder. An example that connects to DOCUMENTED_ADDRESS gets a
broker there without a compactor (tests/grpc/test_client_examples.py); all others need nothing
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
# Signs that an example needs a broker: the documented one, or its own.
_BROKERS = (f'("{DOCUMENTED_ADDRESS}"', "with Broker(")


def with_examples(*, connecting: bool) -> list[str]:
    """Returns the modules of the product and of the shared test code with examples of this kind."""
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
        if not test.examples:  # running it would look at all files that linecache knows
            continue
        for example in test.examples:
            example.source = example.source.replace(DOCUMENTED_ADDRESS, address)
        test.globs["folder"] = folder
        runner.run(test, out=said.write)
    return said.getvalue()
