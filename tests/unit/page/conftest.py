"""The labs of these tests."""

from collections.abc import Iterator

import pytest

from tests.support.page_lab import PageLab


@pytest.fixture
def page() -> Iterator[PageLab]:
    lab = PageLab()
    yield lab
    lab.close()


@pytest.fixture
def written() -> Iterator[PageLab]:
    """A page that may change things."""
    lab = PageLab(writes=True)
    yield lab
    lab.close()


@pytest.fixture
def kafka() -> Iterator[PageLab]:
    """A page of a Kafka topic that may be cleaned."""
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    lab = PageLab(writes=True, kafka=config)
    yield lab
    lab.close()
