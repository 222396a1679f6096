"""The arrows between packages and the rules of the house, read from the source itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("coordinator", "workers", "drivers")
MAX_LINES = 400
# What the coordinator may know of workers: the contract, and the pure parts of simulations and of models.
OPEN_TO_COORDINATOR = (
    "workers.contract", "workers.models.access", "workers.simulation.configuration", "workers.simulation.statistics",
    "workers.simulation.plan", "workers.simulation.errors",
)  # fmt: skip


def sources(*folders: str) -> list[Path]:
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts
    )


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            module = node.module or ""
            # `from workers import contract` names a module too.
            submodules = [f"{module}.{alias.name}" for alias in node.names if _is_module(f"{module}.{alias.name}")]
            yield from ((node.lineno, name) for name in submodules or [module])


def _is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def forbidden(package: str, module: str) -> bool:
    top = module.split(".")[0]
    if top not in PACKAGES or top == package:
        return False
    if package == "coordinator":
        return not any(module == name or module.startswith(name + ".") for name in OPEN_TO_COORDINATOR)
    return not (package == "workers" and top == "drivers")


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_follow_the_arrows(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(package)
        for line, module in imports_of(path)
        if forbidden(package, module)
    ]
    assert wrong == []


def test_an_arrow_the_other_way_is_seen() -> None:
    assert forbidden("drivers", "workers.contract")
    assert forbidden("workers", "coordinator.files")
    assert forbidden("coordinator", "workers.playthrough")
    assert forbidden("coordinator", "drivers.bridge")
    assert not forbidden("coordinator", "workers.contract")
    assert not forbidden("workers", "drivers.base")


def test_no_source_file_has_two_subjects() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in sources(*PACKAGES, "benchmarks", "examples", "bin")
        if (lines := len(path.read_text().splitlines())) > MAX_LINES
    ]
    assert long == []


def test_no_module_is_named_after_nothing() -> None:
    banned = {"utils", "util", "helpers", "helper", "common", "misc"}
    found = [
        str(path.relative_to(ROOT)) for path in sources(*PACKAGES, "tests") if banned & {path.stem, path.parent.name}
    ]
    assert found == []


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(*PACKAGES)
        if not path.is_relative_to(ROOT / "coordinator" / "cli")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


def test_nothing_is_left_to_be_done() -> None:
    words = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")))
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources(*PACKAGES, "tests", "benchmarks", "examples", "bin")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if words.search(line)
    ]
    assert found == []


def test_product_code_spawns_and_never_forks() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(*PACKAGES)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("fork", "forkpty")
    ]
    assert found == []
