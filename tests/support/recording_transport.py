"""The broker's end of a connection of Pulsar's protocol, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any


class Client(asyncio.Transport):
    """The broker's end of a connection whose client says what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Queue[object]()
        self.is_paused = False

    def write(self, data: object) -> None:
        self.answers.put_nowait(data)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing."""
