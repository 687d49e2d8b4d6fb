"""Pulsar's Java client, unchanged: schemas that the Python client does not have.

AUTO_CONSUME, AUTO_PRODUCE_BYTES, keys and values, every primitive type, and PulsarAdmin. Skipped
like tests/oracle/test_pulsar_admin.py; a Java without a compiler skips it, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import MakeBroker, has_java

JARS = "LEDGERFOLD_PULSAR_TOOLS"
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(JARS not in os.environ, reason=f"{JARS} names no folder of jars"),
    pytest.mark.skipif(not has_java(), reason="Java is not installed"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="Java has no compiler"),
]


def test_schemas_of_the_java_client(broker_process: MakeBroker) -> None:
    broker = broker_process(
        *("--admin-listen", "127.0.0.1:0", "--pulsar-listen", "127.0.0.1:0"), compactor="off"
    )
    program = Path(__file__).with_name("SchemaClient.java")
    ran = subprocess.run(
        [
            *("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
            *("-cp", f"{os.environ[JARS]}/*", str(program)),
            *(f"pulsar://{broker.ready['pulsar']}", f"http://{broker.ready['admin']}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert ran.stdout.splitlines()[-1] == "done", ran.stdout[-4000:]
    assert "FAILED" not in ran.stdout, ran.stdout
    assert "Traceback" not in broker.stderr
