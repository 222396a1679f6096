"""Looks for secrets in files and text, in the spellings that programs write them in, and takes them out.

What is looked for are known values (each in many encodings) and the well-known shapes of tokens. Files are read in
chunks of bounded size, so their length does not matter. A value is never part of a name, message or log line made
here. Content that is compressed inside a file (a zip, a video) is not opened.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import secrets as randomness
import stat
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

CHUNK_BYTES = 1 << 20
OVERLAP_BYTES = 32 << 10
MIN_SECRET_CHARACTERS = 6
MAX_SECRET_BYTES = 4 << 10

# A shape wants digits and mixed case where words could look like it, so that prose and class names are left alone.
_MIXED = rb"(?=[A-Za-z_-]{0,120}[0-9])(?=[a-z0-9_-]{0,120}[A-Z])"
# Each shape: what it is, the literal beginnings that are searched for, the whole pattern matched where one was found.
_SHAPES: tuple[tuple[str, tuple[bytes, ...], bytes], ...] = (
    ("private key", (b"-----BEGIN ",),
     rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[A-Za-z0-9+/=\\\s:,-]{40,16384}"),
    ("sk- key", (b"sk-",), rb"(?<![A-Za-z0-9_-])sk-" + _MIXED + rb"[A-Za-z0-9_-]{20,400}"),
    ("GitHub token", (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
     rb"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{50,255})"),
    ("GitLab token", (b"glpat-",), rb"(?<![A-Za-z0-9])glpat-" + _MIXED + rb"[A-Za-z0-9_-]{20,255}"),
    ("AWS key id", (b"AKIA", b"ASIA"), rb"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("Slack token", (b"xox",), rb"(?<![A-Za-z0-9])xox[abeoprs]-[0-9A-Za-z]{1,20}-[0-9A-Za-z-]{10,255}"),
    ("JSON web token", (b"eyJ",),
     rb"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,4096}\.eyJ[A-Za-z0-9_-]{10,8192}\.[A-Za-z0-9_-]{10,4096}"),
    ("bearer token", (b"Bearer", b"bearer", b"BEARER"),
     rb"(?i:bearer)(?:\s|%20|\+){1,4}(?=[A-Za-z._~+/-]{0,400}[0-9])[A-Za-z0-9._~+/-]{20,4096}={0,2}"),
)  # fmt: skip


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """Something found: its kind (a variable's name or a shape), never its value. Offsets are bytes."""

    start: int
    end: int
    what: str


class Scanner:
    """Compiled once for a run. `known` maps a name to the secret's value; values under 6 characters are not secrets."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._needles: list[tuple[bytes, str]] = []
        for name, value in known.items():
            if len(value) >= MIN_SECRET_CHARACTERS:
                self._needles += [(spelling, name) for spelling in spellings(value)]
        self._shapes = [(what, literals, re.compile(pattern)) for what, literals, pattern in _SHAPES]

    def find(self, data: bytes) -> list[Hit]:
        """Every hit in `data`, overlapping ones joined, in order."""
        hits = [
            Hit(start=start, end=start + len(needle), what=what)
            for needle, what in self._needles
            for start in _occurrences(data, needle)
        ]
        for what, literals, pattern in self._shapes:
            hits += _shaped(data, what, literals, pattern)
        return _joined(hits)

    def redact_text(self, text: str) -> str:
        """The text without what was found, for messages."""
        data = text.encode("utf-8", "surrogatepass")
        hits = self.find(data)
        if not hits:
            return text
        return b"".join(_without(data, 0, hits)).decode("utf-8", "replace")

    def find_in_file(self, path: Path) -> list[Hit]:
        """Every hit in a regular file, read in chunks whose borders overlap. Raises OSError."""
        descriptor = _open_regular(path)
        hits: list[Hit] = []
        try:
            window, offset = b"", 0
            while chunk := os.read(descriptor, CHUNK_BYTES):
                window += chunk
                hits += [
                    Hit(start=hit.start + offset, end=hit.end + offset, what=hit.what) for hit in self.find(window)
                ]
                kept = window[-OVERLAP_BYTES:]
                offset += len(window) - len(kept)
                window = kept
        finally:
            os.close(descriptor)
        return _joined(hits)

    def redact_file(self, path: Path) -> list[Hit]:
        """Look through a file and, if something was found, replace it atomically by one without it. Raises OSError."""
        hits = self.find_in_file(path)
        if hits:
            _rewrite(path, hits)
        return hits


def spellings(value: str) -> set[bytes]:
    """The byte strings under which a value may stand in a file: plain, escaped, quoted, base64, hexadecimal, UTF-16."""
    raw = value.encode("utf-8")[:MAX_SECRET_BYTES]
    found = {raw, value.encode("utf-16-le"), value.encode("utf-16-be")}
    found.add(html.escape(value).encode())
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        twice = json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]
        found |= {spelt.encode() for spelt in (escaped, twice, escaped.replace("/", "\\/"))}
    for quoted in (
        urllib.parse.quote(value),
        urllib.parse.quote(value, safe=""),
        urllib.parse.quote_plus(value),
    ):
        found |= {quoted.encode(), re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), quoted).encode()}
    found |= {raw.hex().encode(), raw.hex().upper().encode()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            # Inside a longer base64 text the value starts at one of three phases; the characters at both ends also
            # hold bits of its neighbours and are left out.
            spelt = encode(bytes(shift) + raw)
            whole = (shift + len(raw)) * 8 // 6
            first = -(-shift * 8 // 6)
            found.add(spelt[first:whole])
    return {spelling for spelling in found if len(spelling) >= MIN_SECRET_CHARACTERS}


def _occurrences(data: bytes, needle: bytes) -> Iterator[int]:
    start = data.find(needle)
    while start >= 0:
        yield start
        start = data.find(needle, start + 1)


def _shaped(data: bytes, what: str, literals: tuple[bytes, ...], pattern: re.Pattern[bytes]) -> Iterator[Hit]:
    # Searching for the literals first is what makes this fast; a place inside the last match is not tried again, so
    # that a file full of beginnings costs no more than one full of anything else.
    for literal in literals:
        start = data.find(literal)
        while start >= 0:
            match = pattern.match(data, start)
            if match is not None:
                yield Hit(start=start, end=match.end(), what=what)
            start = data.find(literal, match.end() if match is not None else start + len(literal))


def _joined(hits: list[Hit]) -> list[Hit]:
    joined: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if joined and hit.start < joined[-1].end:
            last = joined[-1]
            joined[-1] = Hit(start=last.start, end=max(last.end, hit.end), what=last.what)
        else:
            joined.append(hit)
    return joined


def _without(data: bytes, offset: int, hits: list[Hit]) -> Iterator[bytes]:
    position = 0
    for hit in hits:
        yield data[position : max(position, hit.start - offset)]
        if hit.start >= offset:
            yield f"[redacted: {hit.what}]".encode()
        position = max(position, hit.end - offset)
    yield data[position:]


def _open_regular(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a regular file")
    return descriptor


def _rewrite(path: Path, hits: list[Hit]) -> None:
    temporary = path.with_name(f".redacting-{randomness.token_hex(8)}")
    source = _open_regular(path)
    try:
        target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            offset = 0
            while chunk := os.read(source, CHUNK_BYTES):
                end = offset + len(chunk)
                touching = [hit for hit in hits if hit.start < end and hit.end > offset]
                for part in _without(chunk, offset, touching):
                    rest = memoryview(part)
                    while rest:
                        rest = rest[os.write(target, rest) :]
                offset = end
            os.fsync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)
    os.rename(temporary, path)
