"""What people said about findings: `playlane-findings.toml`, kept beside `playlane.toml` under version control.

A finding marked `intended` is known to later runs: it is suppressed there by the name that it was given.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from coordinator.configuration import ConfigurationError
from coordinator.files import Files
from coordinator.tables import TableFaults, read_table

FINDINGS_NAME = "playlane-findings.toml"
MAX_MARKS_BYTES = 1 << 20
Label = Literal["confirmed", "intended", "duplicate", "not_reproducible", "wrong_severity", "too_vague"]
LABELS: tuple[Label, ...] = ("confirmed", "intended", "duplicate", "not_reproducible", "wrong_severity", "too_vague")
_HEAD = "# What was said about findings: coordinate findings mark ID " + "|".join(LABELS) + "\n"


class Mark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One finding's mark. `name` is what it is known by; `note` is for people."""

    signature: str
    mark: Label
    name: str
    note: str = ""


class _Marks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    finding: list[Mark] = msgspec.field(default_factory=list)


def read_marks(project: Path) -> list[Mark]:
    """The marks of a project, none where the file is missing. Raises `ConfigurationError` listing every fault."""
    path = project / FINDINGS_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error.strerror}"]) from error
    if len(data) > MAX_MARKS_BYTES:
        raise ConfigurationError(str(path), [f"is longer than {MAX_MARKS_BYTES} bytes"])
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(str(path), [f"is not TOML in UTF-8: {error}"]) from error
    faults = TableFaults()
    found = read_table(_Marks, table, "", faults)
    seen: set[str] = set()
    for one in found.finding if found is not None else ():
        if one.signature in seen:
            faults.add("finding", f"{one.signature} is marked twice; keep one")
        seen.add(one.signature)
    if faults.faults or found is None:
        raise ConfigurationError(str(path), faults.faults)
    return found.finding


def write_mark(project: Path, mark: Mark) -> list[Mark]:
    """Put a mark in place of the signature's earlier one, or behind all others; give all. Raises like `read_marks`."""
    marks = read_marks(project)
    if any(one.signature == mark.signature for one in marks):
        marks = [mark if one.signature == mark.signature else one for one in marks]
    else:
        marks = [*marks, mark]
    Files().replace(str(project / FINDINGS_NAME), _spell(marks).encode())
    return marks


def known_findings(marks: list[Mark]) -> dict[str, str]:
    """Signature -> name of what is intended, as a run is told."""
    return {one.signature: one.name for one in marks if one.mark == "intended"}


def _spell(marks: list[Mark]) -> str:
    parts = [_HEAD]
    for one in marks:
        rows = [f"{key} = {_quoted(value)}" for key, value in msgspec.to_builtins(one).items()]
        parts.append("\n".join(["[[finding]]", *rows]) + "\n")
    return "\n".join(parts)


def _quoted(text: str) -> str:
    # A JSON string is a basic string of TOML but for one control character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
