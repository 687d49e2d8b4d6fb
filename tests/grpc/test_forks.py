"""Processes that fork while they have a client: nothing hangs, no process dies, the parent
continues.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.support.broker_process import BrokerProcess
from tests.support.forking import EXIT_CODE

_TIMEOUT_S = 100


def run(scenario: str, broker: BrokerProcess) -> dict[str, Any]:
    """Runs tests/support/forking.py in a user's environment, without our variables."""
    environment = dict(os.environ)
    environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.forking", scenario, broker.url],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_objects_of_the_parent_raise_in_the_child(broker: BrokerProcess) -> None:
    """Every call raises at once, children end normally, and the parent loses nothing."""
    answer = run("inherited", broker)
    used, *idle = answer["children"]
    assert {name: error for name, error in used[0].items() if error != "AlreadyClosed"} == {}
    assert used[1] == EXIT_CODE
    assert idle == [["idle", EXIT_CODE]] * 10
    assert answer["parent"] == "all stored"


def test_a_child_cannot_create_a_client_beside_its_parents_client(broker: BrokerProcess) -> None:
    """gRPC would hang or end the process: so it is refused, with the reason."""
    answer = run("new_beside_open", broker)
    refused = ["NotAllowed"] * 3
    assert answer["pool"] == [refused] * 4
    assert answer["children"] == [[refused, EXIT_CODE]] * 3
    assert answer["parent"] == "all stored"


def test_a_client_made_after_the_fork_works(broker: BrokerProcess) -> None:
    """Tests a parent without clients, and one that closed them before the fork, as a prefork
    server.
    """
    answer = run("new_beside_none", broker)
    *published, held = answer["children"]
    assert answer["pool"] == ["published"] * 4
    assert published == [["published", EXIT_CODE]] * 5
    assert held == ["AlreadyClosed", EXIT_CODE]
    assert answer["parent"] == "published"


def test_a_fork_waits_until_closed_clients_have_ended(broker: BrokerProcess) -> None:
    """Ending gRPC threads hold locks that the child would copy. One stays."""
    answer = run("beside_threads_that_end", broker)
    published, refused = answer["children"]
    assert published == [["published", EXIT_CODE], False]
    assert refused == [["NotAllowed", EXIT_CODE], True]
    assert answer["parent"] == "published"


def test_objects_of_the_asyncio_client_raise_in_the_child(broker: BrokerProcess) -> None:
    """A child that runs its own loop gets the same errors."""
    answer = run("asyncio_client", broker)
    assert answer["children"] == [[["AlreadyClosed"] * 3, EXIT_CODE]] * 3
    assert answer["parent"] == "all stored"
