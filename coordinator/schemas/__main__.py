"""Writes the shipped schemas again; run it after a change of what users may write."""

from coordinator.schemas import write_schemas

write_schemas()
