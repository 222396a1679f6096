"""The results as a table for spreadsheets (`results.csv`)."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from workers.simulation.play import GameResult


def write_csv(path: Path, lines: Iterable[bytes], metrics: tuple[str, ...]) -> None:
    """The results as a table. Texts of the game's that a spreadsheet would run as a formula get an apostrophe first."""
    decode = msgspec.json.Decoder(GameResult).decode
    columns = ["index", "strategy", "variant", "seed", "outcome", "status", "reason", "steps", "trace"]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, *(_cell(f"metric {name}") for name in metrics)])
        for line in lines:
            result = decode(line)
            row = [_cell(getattr(result, name)) for name in columns]
            writer.writerow([*row, *(result.metrics.get(name, "") for name in metrics)])


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return "" if value is None else value
