"""Keys that clients have sent in base64, as bytes (broker/client/messages/message.py)."""

from __future__ import annotations

import base64
import binascii

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def decoded(key: bytes) -> bytes:
    """Decodes a key from base64; returns other keys unchanged.

    >>> decoded(b"AAE="), decoded(b"?")
    (b'\\x00\\x01', b'?')
    """
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error:
        return key


def with_decoded(keys: pa.Array, is_base64: NDArray[np.bool_]) -> pa.Array:
    """Returns the column with these rows decoded."""
    listed = keys.to_pylist()
    for row in np.flatnonzero(is_base64):
        if listed[row] is not None:
            listed[row] = decoded(listed[row])
    return pa.array(listed, pa.binary())
