"""Draws messages of a batch of Pulsar's clients.

A separate module: each process of the simulator imports pulsar_entries.py, and has no use for
Hypothesis.
"""

from __future__ import annotations

from hypothesis import strategies as st

from ledgerfold.v1.pulsar_pb2 import KeyValue, SingleMessageMetadata
from tests.support.pulsar_entries import Sent

_TEXTS = st.text(max_size=4)


@st.composite
def singles(draw: st.DrawFn) -> Sent:
    """Draws a message of a batch."""
    value = draw(st.none() | st.binary(max_size=20))
    single = SingleMessageMetadata(payload_size=len(value or b""))
    if value is None:
        single.null_value = True
    if (key := draw(st.none() | st.binary(max_size=4))) is not None:
        single.partition_key = key
        if draw(st.booleans()):
            single.partition_key_b64_encoded = True
    if event_time := draw(st.sampled_from((0, 1, 2**40))):
        single.event_time = event_time
    if ordering_key := draw(st.binary(max_size=2)):
        single.ordering_key = ordering_key
    for name, content in draw(st.dictionaries(_TEXTS, _TEXTS, max_size=2)).items():
        single.properties.append(KeyValue(key=name.encode(), value=content.encode()))
    return single, value or b""
