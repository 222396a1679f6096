"""Tells early that something was put into a directory. Only a hint: it may miss anything, and mends itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver

JOIN_SECONDS = 5.0


class DirectoryWatch:
    """Calls `woken` from another thread when a name appears in `path`; `keep` starts it and starts it again."""

    def __init__(self, path: str, woken: Callable[[], None]) -> None:
        self._path, self._woken = path, woken
        self._observer: BaseObserver | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def running(self) -> bool:
        """Whether the observer lives and looks at the directory that is there now."""
        observer = self._observer
        return (
            observer is not None
            and observer.is_alive()
            and all(emitter.is_alive() for emitter in observer.emitters)
            and self._identity is not None
            and self._identity == _identity(self._path)
        )

    def keep(self) -> None:
        """Start the observer if it never ran, has died, or looks at a directory that was moved away."""
        if self.running:
            return
        from watchdog.events import FileCreatedEvent, FileMovedEvent, FileSystemEventHandler
        from watchdog.observers import Observer

        self.close()
        woken = self._woken

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                woken()

        observer = Observer()
        try:
            identity = _identity(self._path)
            # Only arrivals: an event for our own moving away of files would wake us for ever.
            observer.schedule(Handler(), self._path, event_filter=[FileCreatedEvent, FileMovedEvent])
            observer.start()
        except OSError:
            return  # no directory, or no more watches to be had: the regular listing goes on without
        self._observer, self._identity = observer, identity

    def close(self) -> None:
        """Stop the observer; may be called twice."""
        if self._observer is not None:
            observer, self._observer, self._identity = self._observer, None, None
            observer.stop()
            if observer.is_alive():
                observer.join(JOIN_SECONDS)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)
