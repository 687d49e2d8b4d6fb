"""A message's share of its entry: how many of the stored bytes are its own.

The key section is shared out by key sizes and what the columns cost for each message, the value
section by value sizes. Shares are whole bytes and add up to the sections exactly. The header is
nobody's: it stays as long as any message of the entry does. So what is left of an entry comes to

    header + the shares of the messages that stay

which is exact when all of them do. Otherwise the entry would be built anew, and this is an
estimate: it takes values to compress evenly, properties to be as large as the values are, and
leaves out the batch indexes (4 bytes a message).

    >>> import numpy as np
    >>> sections = Sections(np.array([60]), np.array([100]))
    >>> sections.shares(np.array([3]), np.array([1, 1, 1]), np.array([9, 9, 79])).tolist()
    [30, 30, 100]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.positions import Integers

# Beside a key: its offset, its flags, the size of its value.
_ROW_BYTES = 9


class Sections(NamedTuple):
    """The stored bytes of each entry's sections."""

    key_bytes: Integers
    value_bytes: Integers

    def shares(self, counts: Integers, key_sizes: Integers, value_sizes: Integers) -> Integers:
        """Of each message; `counts`: messages of each entry, of which none is empty."""
        keys = shared_out(self.key_bytes, counts, key_sizes + _ROW_BYTES)
        values = shared_out(self.value_bytes, counts, value_sizes + 1)
        return keys + values


def shared_out(totals: Integers, counts: Integers, weights: Integers) -> Integers:
    """By weight: what rounding leaves over goes to the messages behind.

    Products stay far below 2**63: an entry has a few MB.
    """
    ends = np.cumsum(counts)
    summed = np.cumsum(weights)
    before = np.concatenate(([0], summed[ends[:-1] - 1])) if len(ends) else ends
    until = summed - np.repeat(before, counts)
    whole = until[ends - 1] if len(ends) else ends
    upto = until * np.repeat(totals, counts) // np.repeat(whole, counts)
    shares: Integers = np.diff(upto, prepend=0)
    if len(ends):
        starts = ends - counts
        shares[starts] = upto[starts]
    return shares
