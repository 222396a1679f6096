"""What stands on a game's terminal: a screen of pyte's, and the lines that have scrolled off its top."""

from __future__ import annotations

import codecs
import re
from collections import deque
from typing import Any

import pyte

MAX_SCROLLED_LINES = 2_000
MAX_REPLY_CHARACTERS = 200
BRACKETED_PASTE = 2004
# What pyte raises on sequences that it does not expect (a private mark where it knows none, parameters too many).
_MISREADINGS = (TypeError, ValueError, IndexError, KeyError, AttributeError, AssertionError)
_SEQUENCE_BEGINS = re.compile("(?=\x1b)")
_SEQUENCE = re.compile("^(?:\x1b?\\[)?[0-9;?]*[ -/]*[@-~]")


class _Paper(pyte.Screen):
    """A screen that keeps what scrolls off, notes what kind of game draws on it, and collects replies to the game."""

    def __init__(self, columns: int, lines: int) -> None:
        self.scrolled: deque[str] = deque(maxlen=MAX_SCROLLED_LINES)
        self.scrolled_lines = 0
        self.replies = ""
        self.edits_lines = False
        super().__init__(columns, lines)
        # Set last: pyte places the cursor itself when it sets the screen up.
        self.times_placed = 0

    def index(self) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.scrolled.append(self.row(0))
            self.scrolled_lines += 1
        super().index()

    def row(self, line: int) -> str:
        cells = self.buffer[line]
        return "".join(cells[column].data for column in range(self.columns))

    def cursor_position(self, line: int | None = None, column: int | None = None) -> None:
        self.times_placed = getattr(self, "times_placed", 0) + 1
        super().cursor_position(line or 1, column or 1)

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        if kwargs.get("private") and BRACKETED_PASTE in modes:
            self.edits_lines = True
        super().set_mode(*modes, **kwargs)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        if kwargs.get("private") and BRACKETED_PASTE in modes:
            self.edits_lines = False
        super().reset_mode(*modes, **kwargs)

    def write_process_input(self, data: str) -> None:
        self.replies = (self.replies + data)[:MAX_REPLY_CHARACTERS]


class GameScreen:
    """Takes a game's output byte by byte; gives the screen as it stands, or the text since a mark.

    Rows are counted from the first one ever written, so that a row keeps its number when it scrolls away.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self._paper = _Paper(columns, lines)
        self._stream = pyte.Stream(self._paper)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._mark = (0, 0)
        self._placed_at_mark = 0
        self.misread = 0
        """How many pieces of output held sequences that could not be read."""

    def feed(self, data: bytes) -> None:
        """Take output; nothing in it can do more than draw."""
        for part in _SEQUENCE_BEGINS.split(self._decoder.decode(data)):
            try:
                self._stream.feed(part)
            except _MISREADINGS:
                # The stream's reader has ended with the exception: what follows the sequence needs a new one.
                self.misread += 1
                self._stream = pyte.Stream(self._paper)
                self._stream.feed(_SEQUENCE.sub("", part, count=1).replace("\x1b", ""))

    def take_replies(self) -> bytes:
        """What the terminal answers to the game's questions about itself (where is the cursor, what are you)."""
        replies, self._paper.replies = self._paper.replies, ""
        return replies.encode()

    @property
    def is_addressed(self) -> bool:
        """Whether the game has ever placed the cursor: it can draw a screen, and need not print line after line."""
        return self._paper.times_placed > 0

    @property
    def was_drawn(self) -> bool:
        """Whether the game has placed the cursor since the mark."""
        return self._paper.times_placed > self._placed_at_mark

    @property
    def edits_lines(self) -> bool:
        """Whether the game reads lines though it takes single keys: a line editor has announced itself."""
        return self._paper.edits_lines

    @property
    def position(self) -> tuple[int, int]:
        """Row (counted from the first ever written) and column of the cursor."""
        return self._paper.scrolled_lines + self._paper.cursor.y, self._paper.cursor.x

    @property
    def cursor_line(self) -> str:
        """The line that the cursor stands in, up to the cursor."""
        return self._paper.row(self._paper.cursor.y)[: self._paper.cursor.x]

    def mark(self) -> None:
        """From here on `text_since_mark` counts."""
        self._mark = self.position
        self._placed_at_mark = self._paper.times_placed

    @property
    def has_moved_on(self) -> bool:
        """Whether the cursor has left the line of the mark."""
        return self.position[0] != self._mark[0]

    def picture(self) -> str:
        """The screen as it stands, without the empty ends of lines and the empty lines below."""
        rows = [self._paper.row(line).rstrip() for line in range(self._paper.lines)]
        return "\n".join(rows).rstrip("\n")

    def text_since_mark(self) -> str:
        """What was printed since the mark, lines that were wrapped at the edge joined again."""
        first, column = self._mark
        above = self._paper.scrolled_lines
        rows = [*self._paper.scrolled, *(self._paper.row(line) for line in range(self._paper.lines))]
        oldest = above - len(self._paper.scrolled)
        rows = rows[max(0, first - oldest) :]
        if rows and first >= oldest:
            rows[0] = rows[0][column:]
        # A row that is full to its edge was wrapped; printed lines end before it.
        return "".join(row if row and row[-1] != " " else row.rstrip() + "\n" for row in rows).rstrip("\n")


def without_echo(text: str, typed: str) -> str:
    """An answer without the line that was typed, which the terminal or the game repeats, wrapped or not."""
    place = 0
    for one in typed:
        if one.isspace():
            continue
        while place < len(text) and text[place].isspace():
            place += 1
        if place >= len(text) or text[place] != one:
            return text
        place += 1
    if typed.strip():
        text = text[place:]
    return text.lstrip("\n") if typed else text
