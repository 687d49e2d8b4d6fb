"""Errors without the frames of this package, because Spark's messages contain whole tracebacks."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType

from ledgerfold.storage.errors import LedgerfoldError


class _PlainErrors(ContextDecorator):
    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, LedgerfoldError):
            raise error.with_traceback(None) from None


plain_errors = _PlainErrors()
