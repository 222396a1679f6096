"""What a player sees of a picture, and pictures for people with the place of an input marked.

Senses are applied to the pixels before any brain gets them: no prompt can undo it. Needs Pillow (the extra `web`).
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from drivers.base import Action, Box, Control, Observation
from drivers.pictures import MAX_PIXELS, PictureError
from workers.personas import Senses

if TYPE_CHECKING:
    from PIL import Image

SEEN_QUALITY = 80
MARK_COLOURS = ("#ffffff", "#e00050")
MARK_WIDTH = 3
CROSS_PIXELS = 18


def as_seen(picture: bytes, senses: Senses) -> bytes:
    """A screenshot as these senses take it in: blurred by `blur_pixels` (the sigma, in pixels), without colour.

    The very bytes come back for who sees everything; a JPEG of the same size otherwise, without the original's
    metadata. Raises `PictureError` for bytes that are no picture.
    """
    if senses.blur_pixels == 0 and senses.colour:
        return picture
    from PIL import ImageFilter

    image = _opened(picture)
    if not senses.colour:
        image = image.convert("L")
    if senses.blur_pixels > 0:
        image = image.filter(ImageFilter.GaussianBlur(senses.blur_pixels))
    return _encoded(image)


def place_of(action: Action, observation: Observation) -> Box | None:
    """Where an input goes on the screen it was decided on: the control's box, or a point (a box without size)."""
    if action.ref is not None:
        found: Control | None = next((one for one in observation.controls if one.ref == action.ref), None)
        return found.box if found is not None else None
    if action.x is None or action.y is None or action.relative:
        return None
    return Box(x=action.x, y=action.y, width=0, height=0)


def marked(picture: bytes, place: Box | None, end: tuple[float, float] | None = None) -> bytes:
    """A copy with a frame around `place`, a cross at its middle, and a line to `end` for drags and swipes.

    Coordinates are the picture's own pixels; what lies outside is drawn at the nearest edge. A JPEG. Raises
    `PictureError`.
    """
    from PIL import ImageDraw

    image = _opened(picture)
    if place is None:
        return _encoded(image)
    draw = ImageDraw.Draw(image)
    x = min(max(place.x + place.width / 2, 0), image.width - 1)
    y = min(max(place.y + place.height / 2, 0), image.height - 1)
    # Light below dark: seen on any background.
    for colour, width in zip(MARK_COLOURS, (MARK_WIDTH + 4, MARK_WIDTH), strict=True):
        if place.width > 0 and place.height > 0:
            corner = (max(0, place.x - 4), max(0, place.y - 4))
            other = (
                min(image.width - 1, place.x + place.width + 4),
                min(image.height - 1, place.y + place.height + 4),
            )
            if corner[0] < other[0] and corner[1] < other[1]:
                draw.rectangle((*corner, *other), outline=colour, width=width)
        draw.line((x - CROSS_PIXELS, y, x + CROSS_PIXELS, y), fill=colour, width=width)
        draw.line((x, y - CROSS_PIXELS, x, y + CROSS_PIXELS), fill=colour, width=width)
        if end is not None:
            draw.line((x, y, *end), fill=colour, width=width)
    return _encoded(image)


def _opened(picture: bytes) -> Image.Image:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(picture), formats=("PNG", "JPEG", "WEBP")) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise PictureError(f"{opened.width} x {opened.height} pixels, more than {MAX_PIXELS} in all")
            return opened.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise PictureError(str(error) or type(error).__name__) from error


def _encoded(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=SEEN_QUALITY)
    return stream.getvalue()
