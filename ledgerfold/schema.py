"""Schemas of messages, with the names of `pulsar.schema` (docs/API.md).

>>> from ledgerfold.schema import JsonSchema, Record, String
>>> class Order(Record):
...     item = String()
>>> JsonSchema(Order).encode(Order(item="tea"))
b'{\\n "item": "tea"\\n}'
"""

from __future__ import annotations

from ledgerfold.broker.client.schemas.records import Array as Array
from ledgerfold.broker.client.schemas.records import Boolean as Boolean
from ledgerfold.broker.client.schemas.records import Bytes as Bytes
from ledgerfold.broker.client.schemas.records import CustomEnum as CustomEnum
from ledgerfold.broker.client.schemas.records import Double as Double
from ledgerfold.broker.client.schemas.records import Field as Field
from ledgerfold.broker.client.schemas.records import Float as Float
from ledgerfold.broker.client.schemas.records import Integer as Integer
from ledgerfold.broker.client.schemas.records import Long as Long
from ledgerfold.broker.client.schemas.records import Map as Map
from ledgerfold.broker.client.schemas.records import Null as Null
from ledgerfold.broker.client.schemas.records import Record as Record
from ledgerfold.broker.client.schemas.records import String as String
from ledgerfold.broker.client.schemas.schema import AvroSchema as AvroSchema
from ledgerfold.broker.client.schemas.schema import BytesSchema as BytesSchema
from ledgerfold.broker.client.schemas.schema import JsonSchema as JsonSchema
from ledgerfold.broker.client.schemas.schema import Schema as Schema
from ledgerfold.broker.client.schemas.schema import SchemaInfo as SchemaInfo
from ledgerfold.broker.client.schemas.schema import SchemaType as SchemaType
from ledgerfold.broker.client.schemas.schema import StringSchema as StringSchema
from ledgerfold.exports import export

export(globals())
