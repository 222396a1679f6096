"""What exactly is being played: the content of a build, as one digest."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from coordinator.configuration import ConfigurationError
from coordinator.documents import DocumentError, content_sha256, decode
from coordinator.files import read_users_file
from coordinator.tables import TableFaults, read_table

MAX_BUILD_FILES = 20_000
MAX_BUILD_BYTES = 2 << 30
MAX_BRIDGE_BYTES = 64_000
_CHUNK_BYTES = 1 << 20
# Written by tools or by ourselves, not by the game's author: a run must not change what the next one is called.
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
SKIPPED_FILES = frozenset({"playlane.toml", "playlane-findings.toml"})


class BridgeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`bridge.json`: how a game that speaks the bridge protocol is started. `cwd` is relative to the file's folder."""

    driver: Literal["cli_stdio"] = "cli_stdio"
    command: list[str] | str | None = None
    cwd: str | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    startup_timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=600_000)] = 10_000
    step_timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=600_000)] = 5_000
    sessions: Annotated[int, msgspec.Meta(ge=1, le=1_024)] = 1
    seed_bits: Literal[32, 53, 64] = 64
    python: str | None = None
    gymnasium: str | None = None


class Build(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One build. `digest` is the SHA-256 over path, size and SHA-256 of every file that belongs to it."""

    kind: str
    ref: str
    digest: str
    files: int
    bytes: int


def read_bridge(path: Path) -> dict[str, Any]:
    """The decoded bridge file, as written, fit for playing.

    Raises `ConfigurationError`: not readable, no JSON object, unknown keys by name, the simulation-only forms
    `python` and `gymnasium`, no command, numbers out of range.
    """
    try:
        data = read_users_file(path)
    except OSError as error:
        raise ConfigurationError(str(path), [f"the bridge file cannot be read: {error.strerror}"]) from error
    try:
        table = decode(data, limit_bytes=MAX_BRIDGE_BYTES)
    except DocumentError as error:
        raise ConfigurationError(str(path), [f"the bridge file {error}"]) from error
    faults = TableFaults()
    bridge = read_table(BridgeFile, table, "", faults)
    if bridge is not None:
        _check_bridge(bridge, faults)
    if faults.faults:
        raise ConfigurationError(str(path), faults.faults)
    return table


def _check_bridge(bridge: BridgeFile, faults: TableFaults) -> None:
    for key in ("python", "gymnasium"):
        if getattr(bridge, key) is not None:
            faults.add(key, "is for simulation batches, which play inside one process; playing needs a command")
    if bridge.python is None and bridge.gymnasium is None and not bridge.command:
        faults.add("command", 'is missing: a list of words, as in ["python3", "game.py"]')
    if isinstance(bridge.command, str):
        try:
            shlex.split(bridge.command)
        except ValueError as error:
            faults.add("command", f"cannot be split into words: {error}")


def bridge_folder(path: Path, bridge: dict[str, Any]) -> Path:
    """Where the game is started: the file's own folder, or its `cwd`, relative to that. Raises `ConfigurationError`."""
    folder = (path.parent / bridge["cwd"] if bridge.get("cwd") else path.parent).resolve()
    if not folder.is_dir():
        raise ConfigurationError(str(path), [f"cwd: {folder} is not a folder"])
    return folder


def bridge_build(path: Path, patterns: Sequence[str] = ()) -> Build:
    """Hash a bridge's build.

    It is the bridge file, every file of its folder and of its `cwd`, and files that its command names elsewhere;
    hidden files, `__pycache__`, `node_modules`, `playlane.toml` and `playlane-findings.toml` do not belong to it. With
    `patterns` (`build_files`, relative to the bridge's folder) only the files that these match, and the bridge file.
    Links are hashed as links and not followed. Raises `ConfigurationError` past `MAX_BUILD_FILES` or
    `MAX_BUILD_BYTES`, for a pattern that matches nothing, and for files that cannot be read.
    """
    bridge = read_bridge(path)
    folder = bridge_folder(path, bridge)
    base = path.parent.resolve()
    found = {path.resolve()}
    if patterns:
        for pattern in patterns:
            matched = [one for one in _matches(base, pattern, path) if one.is_file() or one.is_symlink()]
            if not matched:
                raise ConfigurationError(str(path), [f"build_files: {pattern!r} matches no file in {base}"])
            found.update(matched)
    else:
        for root in {base, folder}:
            found.update(_files_below(root, path))
        command = bridge.get("command") or []
        found.update(_named_by_command(shlex.split(command) if isinstance(command, str) else command, folder))
    if len(found) > MAX_BUILD_FILES:
        raise _too_large(path, f"has more than {MAX_BUILD_FILES} files")
    rows: list[tuple[str, int, str]] = []
    total = 0
    for file in sorted(found):
        size, digest = _hash_file(path, file)
        total += size
        if total > MAX_BUILD_BYTES:
            raise _too_large(path, f"has more than {MAX_BUILD_BYTES} bytes")
        rows.append((Path(os.path.relpath(file, base)).as_posix(), size, digest))
    return Build(kind="bridge", ref=path.name, digest=content_sha256(rows), files=len(rows), bytes=total)


def command_build(command: Sequence[str], folder: Path, patterns: Sequence[str] = ()) -> Build:
    """Hash what a terminal's command plays: the program, and the files that the command names with their neighbours.

    Neighbours are the files of the same folder (not below it) where the named file lies in `folder`. With `patterns`
    (`build_files`, relative to `folder`) the files that these match instead of the neighbours. Raises
    `ConfigurationError` like `bridge_build`.
    """
    named = set(_named_by_command(command, folder))
    found = set(named)
    # The program is the game as a rule (and an interpreter's version matters too), wherever it lies.
    word = command[0] if command else ""
    program = shutil.which(str(folder / word) if "/" in word else word) if word else None
    if program is not None:
        found.add(Path(program).resolve())
    for pattern in patterns:
        found.update(one for one in _matches(folder, pattern, folder) if one.is_file() or one.is_symlink())
    if not patterns:
        for file in named:
            if file.is_relative_to(folder.resolve()):
                found.update(one for one in file.parent.iterdir() if one.is_file() and _belongs(one.name))
    if len(found) > MAX_BUILD_FILES:
        raise _too_large(folder, f"has more than {MAX_BUILD_FILES} files")
    rows = []
    for file in sorted(found):
        size, digest = _hash_file(folder, file)
        rows.append((Path(os.path.relpath(file, folder)).as_posix(), size, digest))
    rows.append(("command", len(command), content_sha256(list(command))))
    return Build(
        kind="terminal", ref=Path(command[0]).name if command else "", digest=content_sha256(rows),
        files=len(found), bytes=sum(row[1] for row in rows[:-1]),
    )  # fmt: skip


def _belongs(name: str) -> bool:
    return not name.startswith(".") and name not in SKIPPED_FILES


def _matches(base: Path, pattern: str, path: Path) -> list[Path]:
    if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise ConfigurationError(str(path), [f"build_files: {pattern!r} is no pattern below the bridge's folder"])
    return list(base.glob(pattern))


def _files_below(root: Path, path: Path) -> Iterator[Path]:
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in SKIPPED_FOLDERS)
        here = Path(folder)
        links = [one for one in folders if (here / one).is_symlink()]
        for name in [*files, *links]:
            if not name.startswith(".") and name not in SKIPPED_FILES:
                count += 1
                if count > MAX_BUILD_FILES:
                    raise _too_large(path, f"has more than {MAX_BUILD_FILES} files")
                yield here / name


def _named_by_command(command: Sequence[str], folder: Path) -> Iterator[Path]:
    # The first word is the interpreter or the program: a program of the game's own lies in its folder or is named by
    # a path, and an interpreter found on PATH is the machine's, not the build's.
    for position, word in enumerate(command):
        if position == 0 and "/" not in word:
            continue
        file = folder / word
        if not word.startswith("-") and len(word) < 4096 and file.is_file() and not _is_of_system(file):
            yield file.resolve()


def _is_of_system(file: Path) -> bool:
    return file.resolve().is_relative_to("/usr") or file.resolve().is_relative_to("/bin")


def _hash_file(path: Path, file: Path) -> tuple[int, str]:
    try:
        if file.is_symlink():
            target = os.fsencode(file.readlink())
            return len(target), "link:" + hashlib.sha256(target).hexdigest()
        if not file.is_file():
            return 0, "special"
        digest, size = hashlib.sha256(), 0
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                if size > MAX_BUILD_BYTES:
                    raise _too_large(path, f"has a file of more than {MAX_BUILD_BYTES} bytes, {file.name}")
        return size, digest.hexdigest()
    except OSError as error:
        raise ConfigurationError(str(path), [f"{file}, part of the build, cannot be read: {error.strerror}"]) from error


def _too_large(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        str(path), [f"the build {what}; name what belongs to it with build_files (patterns below {path.parent})"]
    )
