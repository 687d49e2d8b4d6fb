"""Keys that clients have sent in base64, as bytes (broker/client/messages/message.py)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.storage.decoded import decoded_key


def with_decoded(keys: pa.Array, is_base64: NDArray[np.bool_]) -> pa.Array:
    """Returns the column with these rows decoded."""
    listed = keys.to_pylist()
    for row in np.flatnonzero(is_base64):
        if listed[row] is not None:
            listed[row] = decoded_key(listed[row])
    return pa.array(listed, pa.binary())
