"""Strict JSON: what is read, what is refused, how it is written, and that an edited byte is noticed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, settings
from hypothesis import given as given_any
from hypothesis import strategies as st

from coordinator.documents import (
    MAX_DEPTH,
    MAX_GIVEN_DEPTH,
    DocumentError,
    canonical,
    content_sha256,
    decode,
    encode,
    given,
    seal,
    sha256,
    unseal,
)
from coordinator.manifest import same

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)


def typed(value: Any) -> Any:
    """With the types: 1, 1.0 and True are equal in Python."""
    if isinstance(value, dict):
        return [(key, typed(one)) for key, one in value.items()]
    if isinstance(value, list):
        return [typed(one) for one in value]
    return (type(value).__name__, repr(value))


@given_any(OBJECTS)
@settings(max_examples=80, deadline=None)
@example({"-0": -0.0, "tiny": 5e-324, "big": 1.7976931348623157e308, "int": 2**64 - 1, "low": -(2**63)})
def test_every_object_comes_back_equal_with_its_types_and_order(value: dict[str, Any]) -> None:
    assert typed(decode(encode(value))) == typed(value)
    assert typed(given(value)) == typed(value)


@given_any(OBJECTS)
@settings(max_examples=50, deadline=None)
def test_written_form_is_two_spaces_and_one_newline(value: dict[str, Any]) -> None:
    assert encode(value).decode() == json.dumps(value, indent=2, ensure_ascii=False) + "\n" or has_floats(value)


def has_floats(value: Any) -> bool:
    """Floats may be spelt differently than Python's own module spells them."""
    if isinstance(value, dict):
        return any(has_floats(one) for one in value.values())
    return any(has_floats(one) for one in value) if isinstance(value, list) else isinstance(value, float)


@given_any(OBJECTS, st.binary(min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_trailing_data_is_refused(value: dict[str, Any], tail: bytes) -> None:
    if tail.strip(b" \t\r\n"):
        with pytest.raises(DocumentError):
            decode(encode(value) + tail)
    else:
        assert decode(encode(value) + tail) == value


@given_any(OBJECTS)
@settings(max_examples=30, deadline=None)
def test_every_prefix_is_refused(value: dict[str, Any]) -> None:
    data = encode(value).rstrip(b"\n")
    for length in range(len(data)):
        with pytest.raises(DocumentError):
            decode(data[:length])


@given_any(st.binary(max_size=64))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_one_object_or_a_document_error(data: bytes) -> None:
    try:
        assert isinstance(decode(data), dict)
    except DocumentError as error:
        assert str(error)


BAD = {
    "empty": b"",
    "blank": b" \n",
    "zeros": bytes(4096),
    "array": b"[]",
    "null": b"null",
    "number": b"1",
    "text": b'"{}"',
    "two": b"{}{}",
    "doubled": b'{"a": 1}\n{"a": 1}\n',
    "comma": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "comment": b'{"a": 1} // x',
    "duplicate": b'{"a": 1, "a": 1}',
    "duplicate deep": b'{"x": [{"a": 1, "b": 2, "a": 3}]}',
    "duplicate escaped": b'{"a": 1, "\\u0061": 1}',
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": Infinity}',
    "-Infinity": b'{"a": -Infinity}',
    "1e400": b'{"a": 1e400}',
    "-1e400": b'{"a": -1e400}',
    "1e-400": b'{"a": 1e-400}',
    "huge exponent": b'{"a": 1e99999999999999999999}',
    "tiny exponent": b'{"a": 1e-99999999999999999999}',
    "0.1 and more": b'{"a": 0.1000000000000000055511151231257827}',
    "2**53+1 as float": b'{"a": 9007199254740993.0}',
    "2**64": b'{"a": 18446744073709551616}',
    "-2**63-1": b'{"a": -9223372036854775809}',
    "5000 digits": b'{"a": ' + b"7" * 5000 + b"}",
    "5000 digits of a float": b'{"a": 0.' + b"7" * 5000 + b"}",
    "leading zero": b'{"a": 01}',
    "plus": b'{"a": +1}',
    "hex": b'{"a": 0x1}',
    "bare dot": b'{"a": 1.}',
    "lone surrogate": b'{"a": "\\ud800"}',
    "lone low surrogate": b'{"a": "x\\udc00y"}',
    "lone surrogate in a key": b'{"\\ud800": 1}',
    "raw surrogate": b'{"a": "\xed\xa0\x80"}',
    "overlong": b'{"a": "\xc0\xaf"}',
    "not UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "BOM": b'\xef\xbb\xbf{"a": 1}',
    "control character": b'{"a": "\x01"}',
    "newline in a text": b'{"a": "\n"}',
    "100,000 brackets": b'{"a": ' + b"[" * 100_000,
    "100,000 brackets closed": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "one too deep": b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_document_is_refused(name: str) -> None:
    with pytest.raises(DocumentError):
        decode(BAD[name])


GOOD: dict[str, tuple[bytes, Any]] = {
    "2**64-1": (b'{"a": 18446744073709551615}', 18446744073709551615),
    "2**53+1": (b'{"a": 9007199254740993}', 9007199254740993),
    "-2**63": (b'{"a": -9223372036854775808}', -(2**63)),
    "one tenth": (b'{"a": 0.1}', 0.1),
    "trailing zeros": (b'{"a": 0.1000}', 0.1),
    "exponent": (b'{"a": 1e3}', 1000.0),
    "surrogate pair": (b'{"a": "\\ud83c\\udfb2"}', "\U0001f3b2"),
    "NUL in a text": (b'{"a": "\\u0000"}', "\0"),
    "windows line ends": (b'{\r\n  "a": 1\r\n}\r\n', 1),
    "no white space": (b'{"a":1}', 1),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_document_is_read_and_comes_back(name: str) -> None:
    data, value = GOOD[name]
    found = decode(data)["a"]
    assert typed(found) == typed(value)
    assert typed(decode(encode({"a": found}))) == typed({"a": value})


def test_deepest_allowed_document_is_read() -> None:
    assert decode(b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH)


def test_size_is_bounded() -> None:
    assert decode(b'{"a": 1}', limit_bytes=8) == {"a": 1}
    with pytest.raises(DocumentError, match="more than 7"):
        decode(b'{"a": 1}', limit_bytes=7)


# -- values that callers give


@pytest.mark.parametrize(
    "value",
    [math.nan, -math.inf, 2**64, -(2**63) - 1, "\ud800", b"x", bytearray(b"x"), object(), 1j, {"\udc80": 1}, print],
)
def test_value_that_would_not_come_back_is_refused(value: Any) -> None:
    for one in (value, [value], {"a": {"b": [1, value]}}):
        with pytest.raises(DocumentError):
            given(one)


def test_given_value_is_bounded_in_depth() -> None:
    value: Any = 1
    for _ in range(MAX_GIVEN_DEPTH):
        value = [value]
    assert given(value) == value
    with pytest.raises(DocumentError, match="nested deeper"):
        given([value])
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(DocumentError, match="nested deeper"):
        given(cycle)


def test_given_value_is_a_deep_copy() -> None:
    inner = {"x": [1]}
    copy = given({"a": inner})
    inner["x"].append(2)
    assert copy == {"a": {"x": [1]}}


# -- comparing and hashing


@pytest.mark.parametrize(
    "first, second, equal",
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (1, 1.0, False),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
        ({"a": None}, {}, False),
        ("\u00e9", "e\u0301", False),
        (0.0, -0.0, False),
    ],
)
def test_content_is_compared_with_its_types(first: Any, second: Any, equal: bool) -> None:
    assert same(first, second) is equal
    assert (content_sha256(first) == content_sha256(second)) is equal


@given_any(OBJECTS)
@settings(max_examples=50, deadline=None)
def test_canonical_spelling_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical(turned) == canonical(value)


# -- seals


@given_any(OBJECTS.filter(bool).filter(lambda value: "sha256" not in value))
@settings(max_examples=50, deadline=None)
def test_sealed_document_is_a_readable_document_with_its_hash(value: dict[str, Any]) -> None:
    data = seal(value)
    assert typed(unseal(data)) == typed(value)
    whole = decode(data)
    assert whole.pop("sha256") == sha256(encode(value))
    assert typed(whole) == typed(value)
    assert data == encode({**value, "sha256": sha256(encode(value))})


def test_every_changed_byte_of_a_sealed_document_is_noticed() -> None:
    data = seal({"version": 1, "entries": {"a": {"phase": "reserved", "n": [1, 2.5, None]}}})
    tried = 0
    for position in range(len(data)):
        for byte in range(256):
            if byte != data[position]:
                with pytest.raises(DocumentError):
                    unseal(data[:position] + bytes([byte]) + data[position + 1 :])
                tried += 1
    assert tried == 255 * len(data)


def test_every_lost_added_or_cut_byte_of_a_sealed_document_is_noticed() -> None:
    data = seal({"version": 1, "a": {"b": "c"}})
    for position in range(len(data)):
        for other in (
            data[:position],
            data[:position] + data[position + 1 :],
            data[:position] + b" " + data[position:],
            data[:position] + b"\0" * (len(data) - position),
        ):
            with pytest.raises(DocumentError):
                unseal(other)
    for tail in (b"\n", b" ", b"x", data):
        with pytest.raises(DocumentError):
            unseal(data + tail)
