"""A message's share of the stored bytes of its entry.

The key section is divided by key sizes and the fixed columns of each message, the value section by
value sizes. Shares are whole bytes and add up to the sections exactly. The header belongs to no
message: it stays as long as any message of the entry does. The rest of an entry therefore has

    header + the shares of its surviving messages

which is exact if all survive. Otherwise the entry would be rebuilt, and this is an estimate: it
assumes that values compress evenly and that properties are as large as values, and excludes the
batch indexes (4 bytes a message).

Most messages survive under no strategy, so shares are computed only for those requested, from sums
over all:

    >>> import numpy as np
    >>> sizes = np.array([9, 9, 79])
    >>> section = Section(np.array([100]), sums_of(sizes), each=1)
    >>> section.shares(np.array([0, 2]), np.array([0, 3]), np.array([0, 0])).tolist()
    [10, 80]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Integers

# In addition to a key: its offset, its flags, the size of its value.
KEY_ROW_BYTES = 9
VALUE_ROW_BYTES = 1


class Section(NamedTuple):
    """A section of many entries. `totals`: the stored bytes of each.

    A message weighs its size and `each`; `sums`: the sizes of all messages before each row.
    """

    totals: Integers
    sums: NDArray[np.integer]
    each: int

    def shares(self, rows: Integers, bounds: Integers, entries: Integers) -> Integers:
        """Returns the shares of these rows. `bounds`: where each entry's rows begin; `entries`:
        that of each row.

        Shares are by weight; later messages get the remainders of rounding. Products stay far below
        2**63: an entry has a few MB.
        """
        weights = self._weight(bounds)
        before, whole = weights[:-1][entries], np.diff(weights)[entries]
        totals = self.totals[entries]
        return self._part(rows + 1, before, whole, totals) - self._part(rows, before, whole, totals)

    def _part(
        self, rows: Integers, before: Integers, whole: Integers, totals: Integers
    ) -> Integers:
        """Returns the bytes of its entry that belong to the messages before each row."""
        part = self._weight(rows)
        part -= before
        part *= totals
        part //= whole
        return part

    def _weight(self, rows: Integers) -> Integers:
        """Returns the weight of all messages before these rows."""
        weight = rows * self.each
        weight += self.sums[rows]
        return weight


def sums_of(sizes: Integers) -> Integers:
    """Returns the sums before each row, and of all."""
    sums = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums
