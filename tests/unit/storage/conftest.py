"""Shared fixtures of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns after nearly every step, so that a race shows within a second."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
