"""Signals that ask a command to end: counted, never acted upon inside a handler."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """How often the user asked to end. Once: finish the turn in flight. Twice: end the children."""

    def __init__(self) -> None:
        self.count = 0
        self.name = ""
        self.came = asyncio.Event()

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """While inside, Ctrl-C, SIGTERM and SIGHUP are counted instead of raising or killing. Needs a running loop."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._note, number)
        try:
            yield
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def _note(self, number: signal.Signals) -> None:
        self.count += 1
        self.name = signal.Signals(number).name
        self.came.set()
