"""Every route, with every odd thing in its path, its parameters and its body: no internal error."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from ledgerfold.broker.http.routes import ADMIN
from ledgerfold.broker.http.server import all_routes
from tests.support.http_lab import HttpLab
from tests.support.property_tests import examples

NAMES = ("t", "p", "p-partition-0", "k", "nope", "", "..", "a/b", "ü\u2028", "x" * 1100)
NUMBERS = ("1", "-1", "0", "9" * 19, "9" * 4000, "1.5", "x", "")
BODIES: tuple[object, ...] = (
    *(None, True, 0, -1, 2**63, 1.5, "", "earliest", "x", [], [1], {}, {"a": {"b": [None]}}),
    {"ledgerId": 2**63 - 1, "entryId": -1},
    {"ledgerId": -5, "entryId": -5, "batchIndex": -1},
    {"messageId": {"ledgerId": None, "entryId": {}}},
    {"partitions": True, "properties": 7},
    {"partitions": 1, "properties": {}},
    {"retentionTimeInMinutes": 2**31 - 1, "retentionSizeInMB": 2**31 - 1},
    {"adminRoles": "x", "allowedClusters": ["standalone"]},
    {"adminRoles": [None], "allowedClusters": ["standalone"]},
)
PARAMETERS = ("", "?applied=x&force=maybe&perPartition=&messageTTL=x", "?messagePosition=-1&mode=x")
_NUMBERED = ("count", "timestamp", "seconds", "position", "ledger", "entry")


@pytest.fixture
def filled(lab: HttpLab) -> HttpLab:
    lab.done("PUT", "/persistent/public/default/t")
    lab.done("PUT", "/persistent/public/default/t/subscription/s")
    lab.done("PUT", "/persistent/public/default/p/partitions", 2)
    lab.run(lab.broker.create_topic("persistent://public/default/k", {}))
    return lab


def test_every_route_answers_any_request(filled: HttpLab) -> None:
    failed = list[str]()
    routes = filled.on_loop(lambda: all_routes(filled.broker, "h:1", None))
    for method, template, _ in routes:
        for at in range(0, len(BODIES), len(BODIES) // examples(len(BODIES))):
            path = filled_in(template, at)
            body = BODIES[at]
            answer = filled.ask(method, path.removeprefix(ADMIN), body)
            if answer.status in (500, 504):
                failed.append(f"{method} {path} {json.dumps(body)}: {answer}")
    assert not failed, "\n".join(failed[:10])
    assert filled.get("/brokers/health") == b"ok"


def filled_in(template: str, at: int) -> str:
    """The path with names and numbers, another for each `at`."""
    turn = itertools.count(at)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name == "domain":
            return "persistent"
        if name in ("tenant", "namespace", "cluster") and at % 5:
            return {"tenant": "public", "namespace": "default"}.get(name, "standalone")
        if name == "subscription" and at % 2:
            return "s"
        values = NUMBERS if name in _NUMBERED else NAMES
        return quote(values[next(turn) % len(values)], safe="")

    return re.sub(r"{(\w+)}", value, template) + PARAMETERS[at % len(PARAMETERS)]


def test_every_route_is_documented(lab: HttpLab) -> None:
    """docs/ADMIN.md calls the long paths T, N and S."""
    document = (Path(__file__).resolve().parents[3] / "docs" / "ADMIN.md").read_text()
    table = document.partition("| --- | --- |")[2].partition("\n## ")[0]
    routes = lab.on_loop(lambda: all_routes(lab.broker, "h:1", None))
    served = {shown(path) for _, path, _ in routes}
    assert set(re.findall(r"`((?:[TNS]/|/)[^`]*|[TNS])`", table)) - {"/admin/v2"} == served


def shown(path: str) -> str:
    topic = "/persistent/{tenant}/{namespace}/{topic}"
    path = path.replace("{domain}", "persistent").removeprefix(ADMIN)
    path = path.replace(f"{topic}/subscription/{{subscription}}", "S")
    path = path if path.startswith("/lookup") else path.replace(topic, "T")
    path = path.replace("/namespaces/{tenant}/{namespace}", "N")
    for name, short in (("timestamp", "time"), ("count", "n"), ("position", "n")):
        path = path.replace(f"{{{name}}}", f"{{{short}}}")
    return path
