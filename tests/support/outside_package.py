"""A third-party package as an installer leaves it: a module, and its .dist-info beside it.

>>> package = OutsidePackage(folder)
>>> package.write()
>>> sorted(path.name for path in folder.iterdir())
['outside-2.5.dist-info', 'outside.py']
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# Names that may be used as "outside:NAME"; `longest` and `first` are entry points, too.
SOURCE = '''
"""Strategies: some do, some do harm once they meet what no sample holds."""
import os
import time

from tests.support.strategies import FIRST


class Longest:
    """The longest value wins. `even`: at the same length, too."""

    reads = ("value",)

    def __init__(self, even="no"):
        self.even = even == "yes"

    def should_keep_left(self, previous, current):
        if previous is None or not current.value:
            return False
        if self.even:
            return len(previous.value) >= len(current.value)
        return len(previous.value) > len(current.value)

    def explain(self, left, right):
        return f"{len(right.value)} came, {len(left.value)} stood"


class Harmful:
    """What it is told to do, when it meets the value b"harm", or is to explain."""

    version = "harmful 1"
    reads = ("value",)

    def should_keep_left(self, previous, current):
        if current.value == b"harm":
            return self.harm()
        return False

    def explain(self, left, right):
        return self.harm()


class Raises(Harmful):
    def harm(self):
        raise KeyError("nothing of the kind")


class Answers(Harmful):
    def harm(self):
        return 1


class Hangs(Harmful):
    def harm(self):
        time.sleep(10_000)


class Stubborn(Harmful):
    """Heeds nothing."""

    def harm(self):
        while True:
            try:
                time.sleep(10_000)
            except BaseException:
                pass


class Eats(Harmful):
    def harm(self):
        eaten = []
        while True:
            eaten.append(bytearray(1024 * 1024))


class Exits(Harmful):
    def harm(self):
        os._exit(3)


class Unlike(BaseException):
    """No Exception."""


class RaisesUnlike(Harmful):
    def harm(self):
        raise Unlike("any other")


class RaisesUnlikeEarly(RaisesUnlike):
    def should_keep_left(self, previous, current):
        return self.harm()


class Slow:
    """Is not even made in time."""

    def __init__(self):
        time.sleep(10_000)

    def should_keep_left(self, previous, current):
        return False


class Early:
    """Does not even answer about samples."""

    def should_keep_left(self, previous, current):
        return "maybe"
'''
# It uses a module of the tests.
_CHECKOUT = Path(__file__).resolve().parents[2]
_ENTRY_POINTS = "[ledgerfold.strategies]\nlongest = outside:Longest\nfirst = outside:FIRST\n"


@dataclass(frozen=True)
class OutsidePackage:
    folder: Path

    def write(self, source: str = SOURCE, version: str = "2.5") -> None:
        """Replaces the package."""
        (self.folder / "outside.py").write_text(source)
        info = self.folder / "outside-2.5.dist-info"
        info.mkdir(exist_ok=True)
        metadata = f"Metadata-Version: 2.1\nName: outside\nVersion: {version}\n"
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(_ENTRY_POINTS)
        (info / "top_level.txt").write_text("outside\n")

    @property
    def environment(self) -> dict[str, str]:
        """For a process that is to find it."""
        paths = (str(self.folder), str(_CHECKOUT), os.environ.get("PYTHONPATH", ""))
        # Otherwise, Python may load the previous version's compiled form.
        return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
