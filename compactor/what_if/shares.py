"""A message's share of its entry: how many of the stored bytes are its own.

The key section is shared out by key sizes and what the columns cost for each message, the value
section by value sizes. Shares are whole bytes and add up to the sections exactly. The header is
nobody's: it stays as long as any message of the entry does. So what is left of an entry comes to

    header + the shares of the messages that stay

which is exact when all of them do. Otherwise the entry would be built anew, and this is an
estimate: it takes values to compress evenly, properties to be as large as the values are, and
leaves out the batch indexes (4 bytes a message).

Most messages stay under no strategy, so shares are worked out for those alone that are asked about,
from sums over all:

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

# Beside a key: its offset, its flags, the size of its value.
KEY_ROW_BYTES = 9
VALUE_ROW_BYTES = 1


class Section(NamedTuple):
    """That of many entries. `totals`: the stored bytes of each.

    A message weighs its size and `each`; `sums`: of the sizes of all messages before each row.
    """

    totals: Integers
    sums: NDArray[np.integer]
    each: int

    def shares(self, rows: Integers, bounds: Integers, entries: Integers) -> Integers:
        """Of these rows. `bounds`: where each entry's rows begin; `entries`: that of each row.

        By weight: what rounding leaves over goes to the messages behind. Products stay far below
        2**63: an entry has a few MB.
        """
        weights = self._weight(bounds)
        before, whole = weights[:-1][entries], np.diff(weights)[entries]
        totals = self.totals[entries]
        return self._part(rows + 1, before, whole, totals) - self._part(rows, before, whole, totals)

    def _part(
        self, rows: Integers, before: Integers, whole: Integers, totals: Integers
    ) -> Integers:
        """Of its entry's bytes, all that belongs to the messages before each row."""
        part = self._weight(rows)
        part -= before
        part *= totals
        part //= whole
        return part

    def _weight(self, rows: Integers) -> Integers:
        """Of all messages before."""
        weight = rows * self.each
        weight += self.sums[rows]
        return weight


def sums_of(sizes: Integers) -> Integers:
    """Before each row, and of all."""
    sums = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums
