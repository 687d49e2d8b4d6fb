"""The lab of these tests."""

from collections.abc import Iterator

import pytest

from tests.support.http_lab import HttpLab


@pytest.fixture
def lab() -> Iterator[HttpLab]:
    lab = HttpLab()
    yield lab
    lab.close()
