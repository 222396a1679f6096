"""What a command says: results on standard output, everything else on standard error when `--json` is on.

Colour only on a terminal and without NO_COLOR. Text of games and files passes through `plain` first: it may hold
escape codes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import click


def plain(text: object) -> str:
    """Text for a terminal: control codes, which could move the cursor or set its title, become `?`."""
    return "".join(one if one.isprintable() or one == "\n" else ("\t" if one == "\t" else "?") for one in str(text))


class Console:
    """One command's output. A reader that went away (`| head`) is no error: the rest is not written."""

    def __init__(self, *, as_json: bool, verbose: bool = False) -> None:
        self.as_json, self.verbose = as_json, verbose
        self._gone: set[int] = set()
        self._live_lines = 0

    # -- streams

    @property
    def _people(self) -> TextIO:
        return sys.stderr if self.as_json else sys.stdout

    @property
    def is_live(self) -> bool:
        """Whether what people read is a terminal that can be redrawn."""
        return _is_terminal(self._people)

    def colour(self, text: str, **style: Any) -> str:
        use = self.is_live and not os.environ.get("NO_COLOR")
        return click.style(text, **style) if use else text

    def _write(self, stream: TextIO, text: str) -> None:
        if id(stream) in self._gone:
            return
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            self._gone.add(id(stream))
            # Python would complain once more when it closes the stream at exit.
            descriptor = os.open(os.devnull, os.O_WRONLY)
            os.dup2(descriptor, stream.fileno())
            os.close(descriptor)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "replace").decode("ascii"))

    # -- what is said

    def say(self, text: str = "") -> None:
        """A line for people."""
        self.clear_live()
        self._write(self._people, text + "\n")

    def detail(self, text: str) -> None:
        """A line for people who asked for more with `-v`."""
        if self.verbose:
            self.say(self.dim(text))

    def warn(self, text: str) -> None:
        """A line on standard error, whatever the form of output."""
        self.clear_live()
        self._write(sys.stderr, text + "\n")

    def document(self, value: Any) -> None:
        """The one JSON document of `--json`; nothing without it."""
        if self.as_json:
            self._write(sys.stdout, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def live(self, lines: Sequence[str]) -> None:
        """Redraw the last lines of a terminal; nothing where there is none."""
        if not self.is_live:
            return
        self.clear_live()
        width = _width(self._people)
        self._write(self._people, "".join(_cut(line, width) + "\n" for line in lines))
        self._live_lines = len(lines)

    def clear_live(self) -> None:
        if self._live_lines:
            lines, self._live_lines = self._live_lines, 0
            self._write(self._people, f"\x1b[{lines}A\x1b[J")

    # -- words

    def bold(self, text: str) -> str:
        return self.colour(text, bold=True)

    def dim(self, text: str) -> str:
        return self.colour(text, dim=True)

    def good(self, text: str) -> str:
        return self.colour(text, fg="green")

    def bad(self, text: str) -> str:
        return self.colour(text, fg="red", bold=True)

    def uneasy(self, text: str) -> str:
        return self.colour(text, fg="yellow")

    def table(self, rows: Sequence[Sequence[str]], *, indent: int = 2, gap: int = 2) -> None:
        """Aligned columns; the last one is not padded. Cells may be coloured."""
        if not rows:
            return
        widths = [max(len(click.unstyle(row[column])) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            cells = [
                cell + " " * (widths[column] - len(click.unstyle(cell))) if column < len(row) - 1 else cell
                for column, cell in enumerate(row)
            ]
            self.say(" " * indent + (" " * gap).join(cells).rstrip())

    # -- questions

    def ask(self, question: str, *, yes: bool) -> None:
        """Go on at a yes. Raises `click.Abort` at a no, at the end of input, and where there is no terminal to ask."""
        if yes:
            return
        if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
            self.warn(f"{question} There is no terminal to ask, which counts as no; --yes answers it.")
            raise click.Abort
        if not click.confirm(question, default=False, err=True):
            raise click.Abort


def shown(path: Path | str) -> str:
    """A path relative to the current folder where that is shorter."""
    try:
        relative = Path(path).absolute().relative_to(Path.cwd())
    except ValueError:
        return str(path)
    return str(relative) if str(relative) != "." else str(path)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


def _cut(line: str, width: int) -> str:
    """A line that would wrap could not be redrawn; a cut one loses its colour, whose end would be lost too."""
    visible = click.unstyle(line)
    return line if len(visible) <= width else visible[:width]


def _width(stream: TextIO) -> int:
    try:
        return max(20, os.get_terminal_size(stream.fileno()).columns - 1)
    except (OSError, ValueError):
        return 79
