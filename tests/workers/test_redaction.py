"""Secrets are found in every usual spelling, across chunk borders and in big files, taken out, and never shown."""

from __future__ import annotations

import base64
import html
import json
import os
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.runs import Run
from workers.redaction import CHUNK_BYTES, OVERLAP_BYTES, Scanner

SECRET = 'pa§s/w"ord&+\\8812'
SCANNER = Scanner({"SERVICE_TOKEN": SECRET})

SHAPES = {
    "sk- key": "sk-" + "proj-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7",
    "GitHub token": "gh" + "p_" + "aB3dE6gH9j" * 4,
    "GitLab token": "gl" + "pat-" + "aB3dE6gH9jK2mN5pQ8sT",
    "AWS key id": "AK" + "IA" + "ABCDEFGH12345678",
    "Slack token": "xo" + "xb-123456789012-abcdefABCDEF0123",
    "JSON web token": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJlMTIz",
    "bearer token": "Authorization: Bea" + "rer abcdef0123456789abcdef",
    "private key": "-----BEGIN RSA PRIV" + "ATE KEY-----\\nMIIEowIBAAKCAQEAabcdefghijklmnopqrstuvwxyz0123456789+/\\n",
}

SPELLINGS: list[Callable[[str], bytes]] = [
    lambda text: text.encode(),
    lambda text: json.dumps(text).encode(),
    lambda text: json.dumps(text, ensure_ascii=False).encode(),
    lambda text: json.dumps(json.dumps(text)).encode(),
    lambda text: json.dumps(text).replace("/", "\\/").encode(),
    lambda text: urllib.parse.quote(text).encode(),
    lambda text: urllib.parse.quote(text, safe="").encode(),
    lambda text: urllib.parse.quote_plus(text).lower().encode(),
    lambda text: urllib.parse.urlencode({"token": text}).encode(),
    lambda text: html.escape(text).encode(),
    lambda text: text.encode().hex().encode(),
    lambda text: text.encode("utf-16-le"),
    lambda text: text.encode("utf-16-be"),
    *[lambda text, pad=pad: base64.b64encode(b"x" * pad + text.encode() + b"y") for pad in range(4)],
    *[lambda text, pad=pad: base64.urlsafe_b64encode(b"x" * pad + text.encode() + b"y") for pad in range(4)],
]


@pytest.mark.parametrize("number", range(len(SPELLINGS)))
def test_known_value_is_found_in_each_spelling(number: int) -> None:
    data = b"before " + SPELLINGS[number](SECRET) + b" after"
    hits = SCANNER.find(data)
    assert [hit.what for hit in hits] == ["SERVICE_TOKEN"]
    assert SCANNER.find(b"before " + SPELLINGS[number]("another value, 99") + b" after") == []


@pytest.mark.parametrize("what", SHAPES)
def test_shape_of_a_token_is_found_and_named(what: str) -> None:
    assert [hit.what for hit in SCANNER.find(f"x {SHAPES[what]} y".encode())] == [what]
    assert SHAPES[what].split()[-1] not in SCANNER.redact_text(f"x {SHAPES[what]} y")


@pytest.mark.parametrize(
    "text",
    [
        "sk-fading-circle-with-a-very-long-class-name", "the ring bearer abandonedeverythinghehad", "task-force-141",
        "AKIAISNOTAKEY", "eyJust.some.words", "ghp_short", "-----BEGIN CERTIFICATE-----", "Bearer of bad news",
        "0123456789abcdef" * 8, "xoxo-love-letters", "https://example.test/risk-assessment-2024-final-version-for-all",
    ],
)  # fmt: skip
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert SCANNER.find(text.encode()) == []
    assert SCANNER.redact_text(text) == text


@pytest.mark.parametrize("offset", [-1, -5, -15, 0, OVERLAP_BYTES // 2])
@pytest.mark.parametrize("border", [CHUNK_BYTES, CHUNK_BYTES * 2])
def test_secret_across_a_chunk_border_is_found_and_taken_out(tmp_path: Path, border: int, offset: int) -> None:
    path = tmp_path / "big"
    start = border + offset
    path.write_bytes(b"." * start + SECRET.encode() + b"." * (3 * CHUNK_BYTES - start))
    hits = SCANNER.redact_file(path)
    assert [(hit.start, hit.end) for hit in hits] == [(start, start + len(SECRET.encode()))]
    assert path.read_bytes() == b"." * start + b"[redacted: SERVICE_TOKEN]" + b"." * (3 * CHUNK_BYTES - start)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SCANNER.find_in_file(path) == []
    assert os.listdir(tmp_path) == ["big"]


def test_longest_token_across_a_border_is_taken_out_whole(tmp_path: Path) -> None:
    token = b"ey" + b"J" + b"a" * 4000 + b"." + b"ey" + b"J" + b"b" * 8000 + b"." + b"c" * 4000
    path = tmp_path / "log"
    path.write_bytes(b" " * (CHUNK_BYTES - 9000) + token + b" tail")
    assert len(SCANNER.redact_file(path)) == 1
    assert path.read_bytes().strip() == b"[redacted: JSON web token] tail"


def test_file_without_secrets_stays_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "clean"
    path.write_bytes(os.urandom(3 * CHUNK_BYTES))
    before = path.stat().st_ino
    assert SCANNER.redact_file(path) == []
    assert path.stat().st_ino == before


def test_file_full_of_beginnings_is_read_in_bounded_work(tmp_path: Path) -> None:
    """Each shape's beginning, a million bytes of it: no pattern tries the same bytes over and over."""
    for text in ("bearer ", "sk-", "eyJ", " eyJaaaaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "ghp_", "xoxb-1"):
        SCANNER.find(text.encode() * ((1 << 20) // len(text)))


def test_values_too_short_to_be_secrets_are_not_looked_for() -> None:
    assert Scanner({"SHORT": "ab1"}).find(b"cab1n") == []


def test_secret_in_an_artefact_stops_the_batch_and_is_named_by_file_only(tmp_path: Path) -> None:
    run = Run(tmp_path, secrets=["SERVICE_TOKEN"])
    value = "s3cret-value-that-leaks"
    delivery = run.run(
        f"""
        open("transcript.jsonl", "w").write(json.dumps({{"text": "token={value}"}}) + "\\n")
        os.mkdir("shots")
        open("shots/{value}.txt", "w").write("x")
        print("log says {value}")
        finish(artefacts=["transcript.jsonl"], observedFailure="saw {value}")
        """,
        secrets={"SERVICE_TOKEN": value},
    )
    assert delivery.stop is not None
    assert delivery.stop.reason == "secret_leak"
    assert "transcript.jsonl (SERVICE_TOKEN)" in delivery.stop.detail
    assert "player.log" in delivery.stop.detail
    assert delivery.completion.outcome == "passed"
    script = tmp_path / "player-r1.py"
    for path in tmp_path.rglob("*"):
        assert value not in path.name
        if path.is_file() and path != script:
            assert value.encode() not in path.read_bytes(), path
    assert (run.folder / "transcript.jsonl").read_text() == '{"text": "token=[redacted: SERVICE_TOKEN]"}\n'


def test_reservations_key_in_an_artefact_is_taken_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    delivery = run.run("""
        key = json.load(open("../../jobs/r1.json"))["key"]
        open("stolen", "w").write(key)
        finish(artefacts=["stolen"])
    """)
    assert delivery.stop is not None
    assert run.job.key not in (run.folder / "stolen").read_text()
