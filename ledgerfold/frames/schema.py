"""The columns of a read, one row for each message.

ledger_id, entry_id, partition, batch_index   the message id: partition -1 means none, index -1
                                               that the message was not in a batch
offset         of a Kafka topic's record; its message id is 0:OFFSET
key            as bytes: decoded, if a client has sent it in base64; null without one
value          null for a null value
publish_time   of the entry, by the producer's clock
event_time     null if it is not set; of a Kafka topic the record's timestamp
producer_name  of a Kafka topic the producer's id
sequence_id    the producer's number for the message
properties     of a Kafka topic null: see headers
headers        of a Kafka topic's record; else null
"""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("ms", "UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("ledger_id", pa.int64()),
        ("entry_id", pa.int64()),
        ("partition", pa.int32()),
        ("batch_index", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("publish_time", TIME),
        ("event_time", TIME),
        ("producer_name", pa.string()),
        ("sequence_id", pa.int64()),
        ("properties", PROPERTIES),
        ("headers", HEADERS),
    ]
)
NAMES: tuple[str, ...] = tuple(SCHEMA.names)
# The columns that are in the value section of a native entry.
IN_VALUES = ("value", "producer_name", "sequence_id", "properties")


def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in columns])
