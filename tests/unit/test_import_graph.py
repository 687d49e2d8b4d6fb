"""Imports of the product have one direction, and the check finds circles."""

from __future__ import annotations

import pytest

from tests import import_graph, tidy
from tests.tidy import Module


@pytest.fixture(scope="module")
def tree() -> list[Module]:
    return [each for folder in (*tidy.PRODUCT, "proto/ledgerfold") for each in tidy.parsed(folder)]


def test_modules_have_no_import_cycles(tree: list[Module]) -> None:
    """Code that two modules need is below both."""
    found = import_graph.module_circles(tree)
    assert not found, "\n" + "\n".join(found)


def test_rooms_have_no_import_cycles(tree: list[Module]) -> None:
    found = import_graph.room_circles(tree)
    assert not found, "\n" + "\n".join(found)


def test_the_graph_contains_the_whole_tree(tree: list[Module]) -> None:
    """A canary: it has every room, and arrows of each kind of import."""
    arrows = {(each.importer, each.imported) for each in import_graph.imports(tree)}
    assert {
        ("ledgerfold.storage.ledger", "ledgerfold.storage.writer"),
        ("ledgerfold.storage.writer", "ledgerfold.v1.records_pb2"),
        ("ledgerfold.broker.client", "ledgerfold.broker.client.sync.producer"),
        ("ledgerfold.broker.cli.serving", "ledgerfold.broker.server.process"),
        ("ledgerfold.__main__", "ledgerfold.broker.cli.main"),
    } <= arrows
    rooms = {import_graph.room_of(name) for arrow in arrows for name in arrow}
    assert {"storage", "compactor", "v1", "broker.log", "broker.topics", "broker.rpc"} <= rooms


CIRCLES = {
    "at the top": {
        "storage/a.py": "from ledgerfold.storage.b import x",
        "storage/b.py": "import ledgerfold.storage.a",
    },
    "for type checking": {
        "storage/a.py": "if TYPE_CHECKING:\n    from ledgerfold.storage.b import X",
        "storage/b.py": "from ledgerfold.storage import a",
    },
    "inside a function": {
        "storage/a.py": "def f():\n    from ledgerfold.storage import b",
        "storage/b.py": "from ledgerfold.storage.a import f",
    },
    "of three": {
        "broker/log/a.py": "from ledgerfold.broker.log.b import x",
        "broker/log/b.py": "from ledgerfold.broker.log.c import x",
        "broker/log/c.py": "from ledgerfold.broker.log.a import x",
    },
    "of a package": {
        "broker/log/__init__.py": "from ledgerfold.broker.log.a import x",
        "broker/log/a.py": "from ledgerfold.broker.log import y",
    },
    "of itself": {"storage/a.py": "from ledgerfold.storage.a import x"},
}


def parsed(sources: dict[str, str]) -> list[Module]:
    return [Module(path, source) for path, source in sources.items()]


@pytest.mark.parametrize("kind", CIRCLES)
def test_a_circle_of_modules_is_found(kind: str) -> None:
    """A canary: returns the circle with every import of it, and without the imports that lead to
    it.
    """
    outside = {"storage/z.py": "import ledgerfold.storage.a\nimport ledgerfold.broker.log.a"}
    (found,) = import_graph.module_circles(parsed({**CIRCLES[kind], **outside}))
    assert found.count(" imports ") == len(CIRCLES[kind])
    assert "storage/z.py" not in found


def test_a_circle_of_rooms_is_found() -> None:
    """A canary: no two of these modules import each other."""
    tree = parsed(
        {
            "broker/log/a.py": "from ledgerfold.broker.topics.a import x",
            "broker/topics/b.py": "from ledgerfold.storage.a import x",
            "storage/b.py": "from ledgerfold.broker.log.b import x",
            "broker/topics/a.py": "from ledgerfold.v1 import a_pb2",
            "storage/a.py": "from ledgerfold.storage import c",
            "storage/c.py": "",
            "broker/log/b.py": "",
            "proto/ledgerfold/v1/a_pb2.py": "",
        }
    )
    assert import_graph.module_circles(tree) == []
    (found,) = import_graph.room_circles(tree)
    assert found.splitlines() == [
        "broker.log, broker.topics, storage",
        "  broker/log/a.py:1 imports ledgerfold.broker.topics.a",
        "  broker/topics/b.py:1 imports ledgerfold.storage.a",
        "  storage/b.py:1 imports ledgerfold.broker.log.b",
    ]
