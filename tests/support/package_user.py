"""A user's program, copied beside packages with the same names as folders of this checkout.

    python program.py [compact]

It prints facts that tests/grpc/test_package.py checks, as JSON.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module, metadata
from pathlib import Path

OWN = ("broker", "compactor", "proto", "storage", "tests")


def main(compaction: bool) -> dict[str, object]:
    import ledgerfold
    from ledgerfold.testing import Broker

    with Broker(compaction=compaction) as broker:
        producer = broker.client.create_producer("prices")
        for price in ("10", "11"):
            producer.send(price.encode(), partition_key="p3")
        if compaction:
            broker.compact_and_wait("prices")
        reader = broker.client.create_reader(
            "prices", ledgerfold.MessageId.earliest, is_read_compacted=True
        )
        values = []
        while reader.has_message_available():
            values.append(reader.read_next().data().decode())
        server_version = broker.admin.broker_info().version
    return {
        "values": values,
        "versions": [ledgerfold.__version__, metadata.version("ledgerfold"), server_version],
        "own": [str(Path(import_module(name).__file__ or "").parent.parent) for name in OWN],
        "ledgerfold": str(Path(ledgerfold.__file__).parent.parent),
    }


if __name__ == "__main__":
    print(json.dumps(main("compact" in sys.argv)))
