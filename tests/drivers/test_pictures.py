"""Frames told apart, and noise not; places to click on drawn pictures whose places are known."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageDraw

from drivers.base import Box
from drivers.pictures import (
    MAX_CANDIDATES,
    FrameNames,
    PictureError,
    candidates,
    centre,
    difference,
    frame_hash,
    is_blank,
)

SIZE = (1280, 720)


def encoded(picture: Image.Image, kind: str = "PNG", quality: int = 80) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **({"quality": quality} if kind == "JPEG" else {}))
    return stream.getvalue()


def scene(sprite: tuple[int, int] | None = None, cursor: bool = False, back: str = "#203a60") -> Image.Image:
    picture = Image.new("RGB", SIZE, back)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 600, 1279, 719), fill="#3f7f3f")
    draw.rectangle((500, 300, 779, 379), fill="#e0a020")
    draw.text((610, 330), "START", fill="#ffffff")
    if sprite is not None:
        x, y = sprite
        draw.rectangle((x, y, x + 15, y + 15), fill="#ff3030")
    if cursor:
        draw.rectangle((641, 333, 642, 352), fill="#000000")
    return picture


def sky(sprite: tuple[int, int]) -> Image.Image:
    column = np.linspace(60, 220, SIZE[1]).astype(np.uint8)
    pixels = np.repeat(column[:, None], SIZE[0], axis=1)
    picture = Image.fromarray(np.stack([pixels // 3, pixels // 2, pixels], axis=2))
    ImageDraw.Draw(picture).ellipse((sprite[0], sprite[1], sprite[0] + 23, sprite[1] + 23), fill="#ffffff")
    return picture


def dithered(picture: Image.Image, seed: int, strength: int = 2) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-strength, strength + 1, (SIZE[1], SIZE[0], 3))
    return Image.fromarray(np.clip(np.asarray(picture).astype(int) + noise, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("at", [(96, 96), (100, 104), (103, 97), (1261, 700)])
def test_a_sprite_of_sixteen_pixels_that_moved_by_its_size_is_another_frame(kind: str, at: tuple[int, int]) -> None:
    moved = (at[0] - 16, at[1])
    assert frame_hash(encoded(scene(at), kind)) != frame_hash(encoded(scene(moved), kind))
    names = FrameNames()
    assert names.name(encoded(scene(at), kind)) != names.name(encoded(scene(moved), kind))


def test_dithering_a_blinking_cursor_and_jpeg_noise_are_the_same_frame() -> None:
    clean = scene((96, 96))
    first = frame_hash(encoded(clean))
    assert {frame_hash(encoded(dithered(clean, seed))) for seed in range(8)} == {first}
    assert frame_hash(encoded(scene((96, 96), cursor=True))) == first
    names = FrameNames()
    name = names.name(encoded(clean))
    assert names.name(encoded(scene((96, 96), cursor=True))) == name
    for quality in (50, 65, 80, 95):
        assert names.name(encoded(dithered(clean, quality, 4), "JPEG", quality)) == name


def test_names_hold_on_a_gradient_where_every_step_has_a_bound() -> None:
    names = FrameNames()
    here = names.name(encoded(sky((400, 200))))
    assert [names.name(encoded(dithered(sky((400, 200)), seed), "JPEG")) for seed in range(6)] == [here] * 6
    there = names.name(encoded(sky((424, 200))))
    assert there != here
    assert names.name(encoded(sky((400, 200)), "JPEG")) == here


def test_another_size_is_another_frame() -> None:
    assert frame_hash(encoded(Image.new("RGB", (640, 360)))) != frame_hash(encoded(Image.new("RGB", SIZE)))


def test_one_colour_is_blank_and_one_small_sprite_is_not() -> None:
    assert is_blank(encoded(Image.new("RGB", SIZE, "#000000")))
    assert is_blank(encoded(dithered(Image.new("RGB", SIZE, "#707070"), 3), "JPEG"))
    lone = Image.new("RGB", SIZE, "#000000")
    ImageDraw.Draw(lone).rectangle((303, 205, 318, 220), fill="#404040")
    assert not is_blank(encoded(lone, "JPEG"))


def test_what_changed_is_boxed_and_nothing_else() -> None:
    before, after = encoded(scene((96, 96))), encoded(scene((800, 480)))
    assert difference(before, before) == []
    assert difference(before, after) == [
        Box(x=96, y=96, width=16, height=16),
        Box(x=800, y=480, width=16, height=16),
    ]
    assert difference(encoded(Image.new("RGB", (640, 360))), after) == [Box(x=0, y=0, width=1280, height=720)]


def drawn_menu() -> tuple[Image.Image, list[tuple[int, int]]]:
    picture = Image.new("RGB", SIZE, "#102030")
    draw = ImageDraw.Draw(picture)
    places = []
    for row, words in enumerate(("New game", "Options", "Quit")):
        left, top = 480, 200 + 120 * row
        draw.rounded_rectangle((left, top, left + 319, top + 79), 12, fill="#c04040", outline="#ffffff", width=3)
        draw.text((left + 120, top + 30), words, fill="#ffffff", font_size=24)
        places.append((left + 160, top + 40))
    return picture, places


def hits(found: list[Box], place: tuple[float, float], within: float = 12) -> bool:
    return any(abs(x - place[0]) <= within and abs(y - place[1]) <= within for x, y in map(centre, found))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_the_buttons_of_a_drawn_menu_are_candidates(kind: str) -> None:
    picture, places = drawn_menu()
    found = candidates(encoded(picture, kind))
    assert all(hits(found[:6], place) for place in places)
    assert len(found) <= 12
    assert found == candidates(encoded(picture, kind))


def test_each_tile_of_a_board_and_each_small_thing_is_a_candidate() -> None:
    picture = Image.new("RGB", SIZE, "#faf8ef")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((390, 110, 889, 609), fill="#bbada0")
    places = []
    for index in range(16):
        left, top = 405 + 120 * (index % 4), 125 + 120 * (index // 4)
        draw.rectangle((left, top, left + 105, top + 105), fill=("#cdc1b4", "#eee4da")[index % 2])
        draw.text((left + 40, top + 35), "2", fill="#776e65", font_size=40)
        places.append((left + 53, top + 53))
    draw.ellipse((96, 96, 119, 119), fill="#2060ff")
    places.append((108, 108))
    found = candidates(encoded(picture))
    assert [place for place in places if not hits(found, place)] == []


def test_what_changed_comes_first_and_there_are_never_more_than_sixty() -> None:
    rng = np.random.default_rng(7)
    picture = Image.new("RGB", SIZE, "#202020")
    draw = ImageDraw.Draw(picture)
    for index in range(200):
        left, top = 10 + 64 * (index % 20), 10 + 70 * (index // 20)
        draw.rectangle((left, top, left + 39, top + 31), fill=tuple(int(part) for part in rng.integers(80, 255, 3)))
    before = encoded(picture)
    draw.rectangle((650, 360, 650 + 39, 360 + 31), fill="#00ff00")
    found = candidates(encoded(picture), before)
    assert len(found) == MAX_CANDIDATES
    assert hits(found[:1], (670, 376))


def test_bytes_that_are_no_picture_are_refused() -> None:
    for raw in (b"", b"GIF89a", encoded(scene(), "JPEG")[:400]):
        with pytest.raises(PictureError):
            frame_hash(raw)


@pytest.mark.measured
def test_each_look_at_a_frame_takes_at_most_fifteen_milliseconds() -> None:
    rng = np.random.default_rng(1)
    picture = scene((96, 96))
    draw = ImageDraw.Draw(picture)
    for _ in range(200):
        x, y = (int(part) for part in rng.integers(0, (1200, 700)))
        draw.rectangle((x, y, x + 60, y + 40), fill=tuple(int(part) for part in rng.integers(0, 255, 3)))
        draw.text((x, y), "words on it", fill="#ffffff")
    frame, other = encoded(picture, "JPEG"), encoded(scene((96, 96)), "JPEG")
    names = FrameNames()
    for seed in range(50):
        names.name(encoded(scene((16 + 20 * seed, 96)), "JPEG"))
    calls: dict[str, Callable[[], object]] = {
        "frame_hash": lambda: frame_hash(frame),
        "is_blank": lambda: is_blank(frame),
        "difference": lambda: difference(other, frame),
        "candidates": lambda: candidates(frame),
        "FrameNames.name": lambda: names.name(frame),
    }
    taken = {name: median_ms(call) for name, call in calls.items()}
    print(taken)
    assert {name: ms for name, ms in taken.items() if ms > 15} == {}


def median_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(21):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(times), 2)
