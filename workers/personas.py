"""Personas: who plays, and what the harness lets this player see, remember and do.

A persona is a TOML file: a text for models, and limits that are enforced between game and brain for every brain.
Shipped ones lie in `workers/personas/`; a user names an own file by its path.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

Device = Literal["keyboard", "pointer", "touch", "gamepad", "text"]

FOLDER = Path(__file__).parent / "personas"
MAX_FILE_BYTES = 64_000


class PersonaError(ValueError):
    """A persona cannot be used: `where` is the file or name, `faults` lists everything found wrong."""

    def __init__(self, where: str, faults: list[str], todo: str = "") -> None:
        self.where, self.faults, self.todo = where, faults, todo
        super().__init__(f"persona {where}: " + "; ".join(faults) + (f"; {todo}" if todo else ""))


class PersonaLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts are in steps and characters, the delay in milliseconds of game time."""

    patience_steps: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    memory_steps: Annotated[int, msgspec.Meta(ge=0, le=2_000)]
    actions_per_observation: Annotated[int, msgspec.Meta(ge=1, le=20)]
    reading_characters: Annotated[int, msgspec.Meta(ge=1, le=8_000)]
    reaction_delay_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)]


class Senses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`blur_pixels` above 0 loses small print in text; without colour or audio their signs do not arrive."""

    blur_pixels: Annotated[int, msgspec.Meta(ge=0, le=50)] = 0
    colour: bool = True
    audio: bool = True


class Inputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The devices this player has in hand; `text` is a keyboard at a prompt or a list of moves."""

    devices: tuple[Device, ...]


class Persona(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checked persona. `stops_at_goal`: this player's run ends when the game's goal is reached."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    title: Annotated[str, msgspec.Meta(max_length=120)]
    text: Annotated[str, msgspec.Meta(max_length=4_000)]
    stops_at_goal: bool = True
    limits: PersonaLimits
    senses: Senses = msgspec.field(default_factory=Senses)
    inputs: Inputs


def names() -> tuple[str, ...]:
    """The shipped personas, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(name_or_path: str) -> Persona:
    """Read a shipped persona by name, else a file by path; raises `PersonaError`."""
    path = FOLDER / f"{name_or_path}.toml"
    if name_or_path not in names():
        path = Path(name_or_path)
        if path.suffix != ".toml":
            near = get_close_matches(name_or_path, names(), 1)
            raise PersonaError(
                repr(name_or_path),
                ["there is no persona of this name" + (f" (did you mean {near[0]!r}?)" if near else "")],
                f"use one of {', '.join(names())}, or the path of a .toml file",
            )
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise PersonaError(str(path), [f"the file is larger than {MAX_FILE_BYTES} bytes"])
        data = tomllib.loads(raw.decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PersonaError(str(path), [f"cannot be read: {error}"]) from error
    return from_data(data, where=str(path))


def from_data(data: Mapping[str, Any], *, where: str = "in the job") -> Persona:
    """Check decoded persona data (a file's, or a job's); raises `PersonaError` naming every unknown key."""
    faults = list(_unknown_keys(data, Persona, ""))
    if faults:
        raise PersonaError(where, faults)
    try:
        return msgspec.convert(dict(data), Persona)
    except msgspec.ValidationError as error:
        raise PersonaError(where, [str(error)]) from error


def to_data(persona: Persona) -> dict[str, Any]:
    """The plain form that goes into an order; `from_data` reads it back equal."""
    built: dict[str, Any] = msgspec.to_builtins(persona, builtin_types=())
    return built


def _unknown_keys(data: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str) -> list[str]:
    """msgspec stops at the first unknown key; a user wants all of them, with the nearest known one."""
    hints = get_type_hints(kind)
    faults: list[str] = []
    for key, value in data.items():
        if key not in hints:
            near = get_close_matches(key, hints, 1)
            faults.append(f"unknown key {prefix + key!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
            continue
        inner = hints[key]
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct) and isinstance(value, Mapping):
            faults += _unknown_keys(value, inner, f"{prefix}{key}.")
    return faults
