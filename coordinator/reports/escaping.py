"""Game text is hostile: here it becomes plain text for each kind of file that a report is written in. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

# Control codes, and the marks that reorder or hide text: they could make a line read as another one.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)
_ANSI = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-Z\\\\-_])")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = re.compile(r"([\\`*\[\]#~$|]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+=>])")
_LONE = re.compile("[\ud800-\udfff]")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto|www)(?=[:.])")


def seen_text(text: str, limit_characters: int = 4_000) -> str:
    """Text as a person sees it: no escape sequences, no control codes, no hidden marks; cut, and saying so."""
    cleaned = _LONE.sub("\ufffd", _UNSEEN.sub("", _ANSI.sub("", text)))
    if len(cleaned) > limit_characters:
        return cleaned[:limit_characters] + f" … ({len(cleaned) - limit_characters} more characters)"
    return cleaned


def seen_data(value: Any) -> Any:
    """JSON data in which every text, keys too, is seen text."""
    if isinstance(value, str):
        return seen_text(value)
    if isinstance(value, dict):
        return {seen_text(key): seen_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [seen_data(item) for item in value]
    return value


def one_line(text: str, limit_characters: int = 400) -> str:
    """Seen text with every run of white space, line breaks included, as one space."""
    return " ".join(seen_text(text, limit_characters).split())


def markdown_text(text: str, limit_characters: int = 400) -> str:
    """One line of Markdown that shows the text and is nothing but text: no markup, no HTML, no link."""
    escaped = _MARKDOWN.sub(r"\\\1", one_line(text, limit_characters))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return _NUMBERED.sub(r"\1\\\2", _ADDRESS.sub(r"\1&#8203;", escaped))


def markdown_cell(text: str, limit_characters: int = 200) -> str:
    """As `markdown_text`; a table cell loses `|` too."""
    return markdown_text(text.replace("|", " "), limit_characters)


def xml_text(text: str, limit_characters: int = 20_000) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("", seen_text(text, limit_characters))


def annotation_message(text: str) -> str:
    """The message of a CI annotation, percent-encoded as GitHub demands."""
    cleaned = seen_text(text).replace("%", "%25")
    return cleaned.replace("\r", "%0D").replace("\n", "%0A")


def annotation_property(text: str) -> str:
    """A property of a CI annotation: as the message, and `:` and `,` too."""
    return annotation_message(text).replace(":", "%3A").replace(",", "%2C")


def json_for_html(value: Any) -> str:
    """JSON for a `script` element of type `application/json`: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = _LONE.sub("\ufffd", text)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")
