"""Reads tables that people write (TOML) into Structs, and names every fault at once, each by its key."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


class TableFaults:
    """Collects what is wrong with one file, in the order in which it was met."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def add(self, key: str, what: str) -> None:
        self.faults.append(f"{key}: {what}")


def read_table(kind: type[T], table: Any, key: str, faults: TableFaults) -> T | None:
    """Read `table`, found at `key`, as `kind`; None when a fault in it was added to `faults`.

    Unknown keys are named with the nearest known one; fields that are Structs, or lists or maps of Structs, are read
    the same way, so that their faults carry the whole path.
    """
    if not isinstance(table, Mapping):
        faults.add(key or "file", f"is {_kind_of(table)}, not a table")
        return None
    before = len(faults.faults)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    prefix = f"{key}." if key else ""
    for name in table:
        if name not in fields:
            faults.add(prefix + str(name), unknown_key(str(name), fields))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in table:
            if field.required:
                faults.add(prefix + name, "is missing")
            continue
        values[field.name] = _read_value(field.type, table[name], prefix + name, faults)
    if len(faults.faults) > before:
        return None
    return kind(**values)


def unknown_key(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """The words for a key that is not known, with the nearest known one or, failing that, all of them."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    if near:
        return f"is not known; did you mean {near[0]}?"
    return f"is not known; known here: {', '.join(sorted(known))}"


def _read_value(annotation: Any, value: Any, key: str, faults: TableFaults) -> Any:
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        structs = [part for part in arguments if _is_struct(part)]
        if structs and isinstance(value, Mapping):
            return read_table(structs[0], value, key, faults)
    elif _is_struct(annotation):
        return read_table(annotation, value, key, faults)
    elif origin is list and _is_struct(arguments[0]) and isinstance(value, list):
        return [read_table(arguments[0], item, f"{key}[{index}]", faults) for index, item in enumerate(value)]
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        faults.add(key, f"{_lower(str(error))} (found {_shown(value)})")
        return None


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _lower(text: str) -> str:
    text = text.replace(" - at `$", " at `").replace(" at ``", "")
    return text[:1].lower() + text[1:]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _kind_of(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")
