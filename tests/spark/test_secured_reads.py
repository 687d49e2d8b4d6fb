"""Tables, exports and Spark's data source with a broker that has TLS and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructType

from ledgerfold import AuthenticationToken, Client, frames
from ledgerfold.errors import AuthenticationFailed, InvalidRequest
from ledgerfold.frames.spark.types import SCHEMA
from ledgerfold.spark import LedgerfoldDataSource
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold
from tests.support.security_lab import Authority, Tokens, tls_options

COUNT = 20


class Secured:
    """A broker, and the credentials of its superuser in each form."""

    def __init__(self, url: str, certificate: Path, token: str) -> None:
        self.url = f"ledgerfold+ssl://{url}"
        self.arguments: dict[str, Any] = {
            "tls_trust_certs_file_path": str(certificate),
            "authentication": AuthenticationToken(token),
        }
        self.options = {"url": self.url, "token": token, "tlsTrustCerts": str(certificate)}
        self.flags = ("--url", self.url, "--tls-trust-certs", str(certificate), "--token", token)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder: Path = tmp_path_factory.mktemp("secured")
    authority, tokens = Authority(folder), Tokens(folder)
    arguments = ("--compactor", "off", *tokens.options, *tls_options(authority.sign("broker")))
    with BrokerProcess(folder / "data", arguments=arguments) as broker:
        made = Secured(broker.url, authority.file, tokens.of("admin"))
        with Client(made.url, **made.arguments) as client:
            producer = client.create_producer("t")
            for number in range(COUNT):
                producer.send(b"%d" % number)
        yield made


def test_tables_and_exports(secured: Secured, tmp_path: Path) -> None:
    """Neither could pass credentials. No test had read a table from a secured broker."""
    assert frames.read("t", url=secured.url, **secured.arguments).num_rows == COUNT
    with pytest.raises(AuthenticationFailed):
        frames.read("t", url=secured.url, **(secured.arguments | {"authentication": None}))
    ran = ledgerfold("export", "csv", "t", str(tmp_path / "t.csv"), *secured.flags)
    assert ran.code == 0, ran.err
    assert len((tmp_path / "t.csv").read_text().splitlines()) == COUNT + 1
    with pytest.raises(InvalidRequest, match=r"no argument colour\..*, columns, .*, use_tls"):
        frames.read("t", url=secured.url, colour="red")
    with pytest.raises(InvalidRequest, match="has no effect without TLS"):
        frames.read("t", url=secured.url.partition("://")[2], **secured.arguments)


def test_the_data_source(secured: Secured) -> None:
    batch = LedgerfoldDataSource({"topic": "t", **secured.options}).reader(SCHEMA)
    found = [rows for part in batch.partitions() for rows in batch.read(part)]
    assert sum(map(len, found)) == COUNT
    stream = LedgerfoldDataSource({"topic": "t", "start": "earliest", **secured.options})
    reader = stream.streamReader(SCHEMA)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) != start
    schema = StructType().add("value", StringType())
    rows = pa.RecordBatch.from_pydict({"value": ["a", "b"]})
    writer = LedgerfoldDataSource({"topic": "out", **secured.options}).writer(schema, False)
    writer.write(iter([rows]))
    assert frames.read("out", url=secured.url, **secured.arguments).num_rows == 2
    assert secured.options["token"] not in repr(getattr(batch, "query", None))
