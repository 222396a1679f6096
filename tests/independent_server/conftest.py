"""The independent server, running; a thread that it leaves over fails the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.independent_server.server import IndependentServer, serving


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) - before == set()


@pytest.fixture
def server() -> Iterator[IndependentServer]:
    with serving() as running:
        yield running
