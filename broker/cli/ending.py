"""A command that is told to end takes back what it began.

>>> import os
>>> try:
...     with interruptible():
...         os.kill(os.getpid(), signal.SIGTERM)
... except KeyboardInterrupt:
...     print("ended")
ended
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM, as of `timeout` or a service manager, raises KeyboardInterrupt, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
