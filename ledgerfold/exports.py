"""`__all__` of public modules whose names come from others: it lists what they import.

They import each name `as` itself, by which type checkers know that it is public.

  >>> module = {"_hidden": 1, "Public": int, "json": __import__("json"), "export": export}
  >>> export(module)
  >>> module["__all__"]
  ['Public']
"""

from __future__ import annotations
import __future__

from types import ModuleType
from typing import Any


def export(module: dict[str, Any]) -> None:
    """Sets `__all__` in the globals of a module."""
    module["__all__"] = sorted(
        name
        for name, value in module.items()
        if not name.startswith("_")
        if not isinstance(value, ModuleType | __future__._Feature) and value is not export
    )
