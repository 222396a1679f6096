"""Stages that close their ledgers at the end of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.stage import Stage

MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    made: list[Stage] = []

    def make(folder: Path | None = None, **settings: Any) -> Stage:
        made.append(Stage(folder or tmp_path, **settings))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """A dollar, and runs of at most ten cents."""
    return make_stage()
