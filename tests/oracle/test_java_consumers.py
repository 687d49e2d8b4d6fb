"""Pulsar's Java client, unchanged: redeliveries, seeks, and several consumers of a subscription.

What its consumers get is compared with what they got from Pulsar 4.0.7. Skipped like
tests/oracle/test_java_schemas.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.conftest import MakeBroker, has_java

JARS = "LEDGERFOLD_PULSAR_TOOLS"
PROGRAM = Path(__file__).with_name("ConsumerClient.java")
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(JARS not in os.environ, reason=f"{JARS} names no folder of jars"),
    pytest.mark.skipif(not has_java(), reason="Java is not installed"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="Java has no compiler"),
]


def test_consumers_of_the_java_client_get_what_pulsar_gives_them(
    broker_process: MakeBroker,
) -> None:
    broker = broker_process(
        *("--admin-listen", "127.0.0.1:0", "--pulsar-listen", "127.0.0.1:0"), compactor="off"
    )
    ran = subprocess.run(
        [
            *("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
            *("-cp", f"{os.environ[JARS]}/*", str(PROGRAM)),
            *(f"pulsar://{broker.ready['pulsar']}", f"http://{broker.ready['admin']}", "recorded"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    expected = PROGRAM.with_suffix(".txt").read_text().splitlines()
    assert list(unified_diff(expected, ran.stdout.splitlines(), n=0)) == []
    assert "Traceback" not in broker.stderr
