"""JSON Schemas of what users write, made from the Structs that read it: `python -m coordinator.schemas` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from coordinator.builds import BridgeFile
from coordinator.configuration import Configuration
from coordinator.documents import encode
from workers.contract import persona_schema

FOLDER = Path(__file__).parent
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make_schemas() -> dict[str, bytes]:
    """File name -> content, for the configuration, a persona file and a bridge file."""
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "playlane.schema.json": ("playlane.toml", msgspec.json.schema(Configuration)),
        "persona.schema.json": ("A persona file", persona_schema()),
        "bridge.schema.json": ("bridge.json", msgspec.json.schema(BridgeFile)),
    }
    return {name: encode({"$schema": DIALECT, "title": title, **schema}) for name, (title, schema) in made.items()}


def write_schemas() -> None:
    """Replace the shipped files."""
    for name, content in make_schemas().items():
        (FOLDER / name).write_bytes(content)
