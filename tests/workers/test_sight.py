"""Senses on pictures, measured on the very bytes that come out; marks where the input went."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from drivers.base import Action, Box, Control, Observation
from drivers.pictures import PictureError
from workers import personas
from workers.personas import Senses
from workers.sight import as_seen, marked, place_of


def picture() -> bytes:
    image = Image.new("RGB", (320, 180), "#c02020")
    draw = ImageDraw.Draw(image)
    draw.rectangle((160, 0, 319, 179), fill="#2020c0")
    for row in range(20, 160, 12):
        draw.text((10, row), "small print that matters", fill="#ffffff")
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def pixels(raw: bytes) -> NDArray[np.int16]:
    with Image.open(io.BytesIO(raw)) as image:
        return np.asarray(image.convert("RGB"), dtype=np.int16)


def colourfulness(raw: bytes) -> int:
    seen = pixels(raw)
    return int((seen.max(axis=2) - seen.min(axis=2)).max())


def sharpness(raw: bytes) -> int:
    """The strongest step between two neighbouring pixels in the part with small print."""
    bright = pixels(raw)[:, :150].mean(axis=2)
    return int(np.abs(np.diff(bright, axis=1)).max())


def test_low_vision_gets_a_blurred_picture_without_colour() -> None:
    seen = as_seen(picture(), personas.load("low_vision").senses)
    assert colourfulness(picture()) == 160
    assert colourfulness(seen) == 0
    assert sharpness(picture()) > 100
    assert sharpness(seen) < 20
    assert pixels(seen).shape == (180, 320, 3)


def test_each_sense_is_taken_alone() -> None:
    grey = as_seen(picture(), Senses(colour=False))
    assert (colourfulness(grey), sharpness(grey) > 80) == (0, True)
    soft = as_seen(picture(), Senses(blur_pixels=4))
    assert (colourfulness(soft) > 100, sharpness(soft) < 20) == (True, True)


def test_a_newcomer_gets_the_very_bytes() -> None:
    assert as_seen(picture(), personas.load("newcomer").senses) == picture()


def test_no_metadata_of_the_original_survives_the_senses() -> None:
    stream = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "the answer is written here"
    Image.new("RGB", (64, 64), "#ff0000").save(stream, "JPEG", exif=exif)
    assert b"the answer" in stream.getvalue()
    assert b"the answer" not in as_seen(stream.getvalue(), Senses(colour=False))


def test_the_place_of_an_input_is_its_controls_box_or_its_point() -> None:
    box = Box(x=10, y=20, width=30, height=40)
    observation = Observation(controls=(Control(ref="e1", role="button", box=box),))
    assert place_of(Action(kind="click", ref="e1"), observation) == box
    assert place_of(Action(kind="click", ref="e9"), observation) is None
    assert place_of(Action(kind="click", x=5, y=6), observation) == Box(x=5, y=6, width=0, height=0)
    assert place_of(Action(kind="press", key="Enter"), observation) is None
    assert place_of(Action(kind="move", x=5, y=6, relative=True), observation) is None


def test_the_mark_is_drawn_at_the_place_and_nowhere_else() -> None:
    before = pixels(picture())
    after = pixels(marked(picture(), Box(x=200, y=60, width=40, height=30)))
    changed = np.abs(after - before).max(axis=2) > 60
    rows, columns = np.nonzero(changed[:, 160:])
    assert (columns.min() + 160, columns.max() + 160) == pytest.approx((196, 244), abs=8)
    assert (rows.min(), rows.max()) == pytest.approx((56, 94), abs=8)
    assert changed[75, 220]
    red = after[75, 220]
    assert red[0] > 150 and red[1] < 90


def test_a_place_outside_of_the_picture_is_marked_at_its_edge() -> None:
    before = pixels(picture())
    for place in (Box(x=900, y=900, width=0, height=0), Box(x=-50, y=-50, width=10, height=10)):
        after = pixels(marked(picture(), place))
        assert (np.abs(after - before).max(axis=2) > 60).any()


def test_bytes_that_are_no_picture_are_refused() -> None:
    for raw in (b"", b"no picture"):
        with pytest.raises(PictureError):
            as_seen(raw, Senses(colour=False))
        with pytest.raises(PictureError):
            marked(raw, None)
