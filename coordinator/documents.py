"""JSON on disk: read strictly, written so that an operator can read it and a diff is short."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

import msgspec

MAX_DEPTH = 64
# What a caller gives lies a few levels deeper in the files it goes into, which must stay readable.
MAX_GIVEN_DEPTH = 48
MAX_DOCUMENT_BYTES = 256 << 20
_NOT_JSON = (bytes, bytearray, memoryview, datetime, date, time, timedelta, UUID, Decimal)
_INTEGERS = range(-(1 << 63), 1 << 64)

_encoder = msgspec.json.Encoder()
_canonical_encoder = msgspec.json.Encoder(order="sorted")


class DocumentError(ValueError):
    """The bytes are not one strict JSON object; the message says why."""


def encode(value: Any) -> bytes:
    """UTF-8, two-space indent, one newline at the end. Key order is the value's own."""
    return msgspec.json.format(_encoder.encode(value), indent=2) + b"\n"


def encode_around(outer: Callable[[Any], Any], inner: bytes) -> bytes:
    """`encode` of `outer(part)`, an object with a value `part`, where `inner` is what `encode` gave for that part.

    A large part is spelt once however many documents hold it. No JSON text has a line end within a string, so that
    indenting its lines cannot change it.
    """
    mark = _encoder.encode(secrets.token_hex(32))  # in no content that somebody else could have written before
    body = encode(outer(msgspec.Raw(mark)))
    return body.replace(mark, inner[:-1].replace(b"\n", b"\n  "))


def canonical(value: Any) -> bytes:
    """One spelling for equal content: sorted keys, no white space. For hashes and comparisons, never for files."""
    return _canonical_encoder.encode(value)


def sha256(data: bytes) -> str:
    """Hex SHA-256."""
    return hashlib.sha256(data).hexdigest()


def content_sha256(value: Any) -> str:
    """Hex SHA-256 of a value's canonical spelling."""
    return sha256(canonical(value))


def plain(value: Any) -> Any:
    """A Struct, or anything that holds Structs, as its decoded JSON form (a deep copy)."""
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise DocumentError(f"is not JSON data: {error}") from error


def given(value: Any) -> Any:
    """A caller's value as its decoded JSON form (a deep copy).

    Raises `DocumentError` for what a strict reader would not read back equal: NaN and infinities, integers over 64
    bits, lone surrogates, bytes and other types that JSON does not have, depth over `MAX_GIVEN_DEPTH`.
    """
    try:
        found = msgspec.to_builtins(value, builtin_types=_NOT_JSON, str_keys=True)
        _check_depth([found], MAX_GIVEN_DEPTH + 1)
        _check_values(found)
        _check_surrogates(found)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(f"is not JSON data: {error}") from error
    except RecursionError as error:
        raise DocumentError(f"is nested deeper than {MAX_GIVEN_DEPTH}") from error
    return found


def decode(data: bytes, *, limit_bytes: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """Read one JSON object.

    Raises `DocumentError` for anything that would not come back as it is: duplicate keys, NaN or infinities, numbers
    that floats or 64-bit integers cannot hold, lone surrogates, trailing data, depth over `MAX_DEPTH`.
    """
    if len(data) > limit_bytes:
        raise DocumentError(f"is {len(data)} bytes long, more than {limit_bytes}")
    if not data:
        raise DocumentError("is empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(f"is not UTF-8 at byte {error.start}") from error
    try:
        value = _decoder.decode(text)
    except RecursionError as error:
        raise DocumentError(f"is nested deeper than {MAX_DEPTH}") from error
    except json.JSONDecodeError as error:
        raise DocumentError(f"is not JSON: {error.msg} in line {error.lineno}") from error
    if not isinstance(value, dict):
        raise DocumentError("is not an object")
    if text.count("{") + text.count("[") > MAX_DEPTH:  # fewer brackets cannot be deeper
        _check_depth(value)
    if "\\u" in text:
        _check_surrogates(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise DocumentError(f"holds {name}, which is not JSON")


def _exact_float(text: str) -> float:
    number = float(text)
    try:
        exact = math.isfinite(number) and Decimal(repr(number)) == Decimal(text)
    except ArithmeticError:  # an exponent that even Decimal refuses
        exact = False
    if not exact:
        raise DocumentError(f"holds the number {text[:40]}, which does not come back equal")
    return number


def _exact_integer(text: str) -> int:
    if len(text) > 20 or int(text) not in _INTEGERS:
        raise DocumentError(f"holds the number {text[:40]}, which does not come back equal (64 bits at most)")
    return int(text)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DocumentError(f"has the key {key!r} twice")
            seen.add(key)
    return found


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique_pairs,
    parse_float=_exact_float,
    parse_int=_exact_integer,
    parse_constant=_refuse_constant,
)


def _check_values(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise DocumentError(f"holds {item}, which is not JSON")
        elif isinstance(item, int):
            if item not in _INTEGERS:
                raise DocumentError("holds an integer of more than 64 bits, which does not come back equal")
        elif item is not None and not isinstance(item, str):
            raise DocumentError(f"holds a value of type {type(item).__name__}, which is not JSON")


def _check_depth(value: Any, limit: int = MAX_DEPTH) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > limit:
            raise DocumentError(f"is nested deeper than {limit}")
        following: list[Any] = []
        for item in level:
            inner = item.values() if isinstance(item, dict) else item
            following.extend(child for child in inner if isinstance(child, dict | list))
        level = following


def _check_surrogates(value: Any) -> None:
    """An escaped lone surrogate is a str that no UTF-8 file can hold."""
    try:
        _encoder.encode(value)
    except UnicodeEncodeError as error:
        raise DocumentError("holds a lone surrogate") from error


# -- sealed documents: a control file carries the hash of its own body, so that any edited byte is noticed

_SEAL_HEAD = b',\n  "sha256": "'
_SEAL_TAIL = b'"\n}\n'
_SEAL_LENGTH = len(_SEAL_HEAD) + 64 + len(_SEAL_TAIL)


def seal(value: Any) -> bytes:
    """`encode`, with a last key `sha256` over the bytes of the document without it. `value` is a non-empty object."""
    return seal_encoded(encode(value))


def seal_encoded(body: bytes) -> bytes:
    """`seal` of what `encode` gave."""
    return seal_hashed(body)[0]


def seal_hashed(body: bytes) -> tuple[bytes, str]:
    """`seal` of what `encode` gave, and the SHA-256 of the sealed bytes; what both hashes share is hashed once."""
    shared = body[: -len(b"\n}\n")]
    whole = hashlib.sha256(shared)
    inner = whole.copy()
    inner.update(b"\n}\n")
    end = b"".join((_SEAL_HEAD, inner.hexdigest().encode(), _SEAL_TAIL))
    whole.update(end)
    return shared + end, whole.hexdigest()


def unseal(data: bytes, *, limit_bytes: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """The content of a sealed document. Raises `DocumentError` if a byte of it is not what was written."""
    body = data[:-_SEAL_LENGTH] + b"\n}\n"
    if data[-_SEAL_LENGTH:] != _SEAL_HEAD + sha256(body).encode() + _SEAL_TAIL:
        decode(data, limit_bytes=limit_bytes)  # says more where it is not even JSON
        raise DocumentError("was changed: its content does not have the SHA-256 that it carries")
    return decode(body, limit_bytes=limit_bytes)
