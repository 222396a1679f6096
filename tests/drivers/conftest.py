"""A child process that a driver's test leaves over fails that test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drivers.children import children_of_this_process


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = set(children_of_this_process())
    yield
    assert set(children_of_this_process()) - before == set()
