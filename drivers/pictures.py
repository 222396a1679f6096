"""What can be told of a screenshot without knowing the game: its identity, what changed, and where one might click.

Everything works on a grid of cells of 8 x 8 or 16 x 16 pixels: fine enough for a sprite of 16 pixels, coarse enough
that dithering, JPEG noise and a blinking text cursor do not count. Needs Pillow and NumPy (the extra `web`), imported
on use. A JPEG of 1280 x 720 takes 3-10 ms a call; decoding a PNG of that size alone takes 14.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from drivers.base import Box
from drivers.errors import DriverError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    Cells = NDArray[np.int16]

CELL = 8
MAX_PIXELS = 40_000_000
MAX_CANDIDATES = 60
MAX_REGIONS = 60

HASH_LEVEL = 32
HASH_OFFSET = 16
"""The middle value of a cell is cut into steps of 32 with bounds at 16, 48, ...: away from 0, 64, 128, 255."""

BLANK_TOLERANCE = 12
CHANGE_LEVEL = 10
MIN_CANDIDATE_CELLS = 4
MAX_CANDIDATE_SHARE = 0.35
COLOUR_LEVEL = 24
BACKGROUND_SHARE = 0.2
SAME_CENTRE = 12.0

NAME_CELL = 16
NAME_FLOOR = 3
NAME_INK = 64
MAX_NAMED_FRAMES = 400


class PictureError(DriverError):
    """Bytes that are no picture, or one too large to look at."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the picture cannot be read: {what}")


def frame_hash(image: bytes) -> str:
    """Name what a frame shows, 16 hex digits: equal for frames that differ only by noise.

    Every other pixel is looked at; of each cell of 8 x 8 pixels the *median* of brightness and of red minus blue is
    kept, in steps of 32. A median does not see a bar of up to 3 pixels nor single pixels; a sprite of 16 pixels always
    fills one whole cell, so it is seen wherever it moves, if it differs from what is behind it by 32 or more.

    A colour within 2 of a step's bound may still go either way. Where frames of one session are compared, `FrameNames`
    has no such bounds.
    """
    import numpy as np

    picture = _opened(image)
    width, height = picture.size
    small = np.asarray(picture.resize(((width + 1) // 2, (height + 1) // 2), 0), dtype=np.int16)
    bright = (small[..., 0] * 2 + small[..., 1] * 5 + small[..., 2]) >> 3
    warm = ((small[..., 0] - small[..., 2]) >> 1) + 128
    digest = hashlib.sha256(f"{width}x{height}".encode())
    for channel in (bright, warm):
        levels = (_medians(channel.astype(np.uint8)) + HASH_OFFSET) // HASH_LEVEL
        digest.update(levels.astype(np.uint8).tobytes())
    return digest.hexdigest()[:16]


def is_blank(image: bytes) -> bool:
    """Whether a frame is one colour, within 12 of 255 for every square of 4 x 4 pixels."""
    extremes: Any = _opened(image).reduce(4).getextrema()
    return all(high - low <= BLANK_TOLERANCE for low, high in extremes)


def difference(before: bytes, after: bytes) -> list[Box]:
    """Where two frames differ: the boxes around connected cells that changed by more than 10, largest first.

    Frames of different sizes differ everywhere: one box, the whole of `after`.
    """
    import numpy as np

    new = _cells(_opened(after, CELL))
    old = _cells(_opened(before, CELL))
    if new.shape != old.shape:
        return [_box(0, 0, new.shape[1], new.shape[0])]
    changed = np.abs(new - old).max(axis=2) > CHANGE_LEVEL
    found = _regions(changed.astype(np.int32), lone=True, mask=True)
    found.sort(key=lambda region: (-region.cells, region.top, region.left))
    return [region.box for region in found[:MAX_REGIONS]]


def candidates(image: bytes, before: bytes | None = None) -> list[Box]:
    """Places on a canvas that look as if they could be clicked, at most 60: panels of one colour and what stands out.

    Of each connected region of nearly one colour, and of each connected group that is not background (a colour on
    more than a fifth of the frame), the box around it, when that is at least 16 pixels in one direction and 8 in the
    other and at most a third of the frame. Boxes with one centre are one. With `before`, what changed since comes
    first; then larger ones; equal ones from top to bottom.
    """
    import numpy as np

    cells = _cells(_opened(image, CELL))
    rows, columns = cells.shape[:2]
    packed = _packed(cells)
    colours, counts = np.unique(packed, return_counts=True)
    background = colours[counts > BACKGROUND_SHARE * rows * columns]
    standing_out = ~np.isin(packed, background)
    regions = [*_regions(packed), *_regions(standing_out.astype(np.int32), mask=True)]
    fitting = [region for region in regions if _fits(region, rows, columns)]
    moved = difference(before, image) if before is not None else []
    fitting.sort(key=lambda r: (not _touched(r.box, moved), -r.width * r.height, r.top, r.left, r.cells))
    chosen: list[Box] = []
    taken: set[tuple[int, int]] = set()
    for region in fitting:
        box = region.box
        near = (round((box.x + box.width / 2) / SAME_CENTRE), round((box.y + box.height / 2) / SAME_CENTRE))
        if near in taken:
            continue
        taken |= {(near[0] + dx, near[1] + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)}
        chosen.append(box)
        if len(chosen) == MAX_CANDIDATES:
            break
    return chosen


def centre(box: Box) -> tuple[float, float]:
    """The middle of a box, where a pointer goes."""
    return box.x + box.width / 2, box.y + box.height / 2


class FrameNames:
    """Names the frames of one session: a frame takes the name of a known one from which it differs only by noise.

    Two frames are the same when the means of their cells of 16 x 16 pixels, each difference counted above 3 of 255 in
    its strongest colour, differ by less than 64 in sum. A bar of 2 x 20 pixels, black on white, makes 40; a sprite of
    16 x 16 pixels that moved makes twice its contrast. The last 400 names are known; a frame forgotten in between
    takes the same name again unless noise changed its `frame_hash`.
    """

    def __init__(self) -> None:
        self._known: list[tuple[str, Any]] = []

    def name(self, image: bytes) -> str:
        """The name of a frame, 16 hex digits."""
        import numpy as np

        cells = _cells(_opened(image, NAME_CELL), NAME_CELL).astype(np.int16)
        # The latest first: most frames look like one seen just before.
        for position in range(len(self._known) - 1, -1, -1):
            name, known = self._known[position]
            if known.shape == cells.shape and _ink(known, cells) < NAME_INK:
                if position != len(self._known) - 1:
                    self._known.append(self._known.pop(position))
                return name
        name = frame_hash(image)
        taken = {one for one, _ in self._known}
        if name in taken:
            name = hashlib.sha256(f"{name} {len(taken)}".encode()).hexdigest()[:16]
        self._known.append((name, cells))
        del self._known[:-MAX_NAMED_FRAMES]
        return name


def _ink(one: Cells, other: Cells) -> int:
    import numpy as np

    change = np.abs(one - other).max(axis=2)
    return int(change[change > NAME_FLOOR].sum())


# -- cells ----------------------------------------------------------------------------------------------------------


def _opened(image: bytes, scale: int = 1) -> Image.Image:
    """A picture in RGB; of a JPEG only as much is decoded as cells of `scale` pixels need."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(image), formats=("PNG", "JPEG", "WEBP")) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise PictureError(f"{width} x {height} pixels, more than {MAX_PIXELS} in all")
            # JPEG holds blocks of 8 x 8: half of the size costs a third, and `reduce` does the rest.
            if scale > 1 and picture.format == "JPEG" and width % scale == 0 and height % scale == 0:
                picture.draft("RGB", (width // 2, height // 2))
            opened = picture.convert("RGB")
            opened.info["pixels"] = (width, height)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise PictureError(str(error) or type(error).__name__) from error
    return opened


def _cells(picture: Image.Image, size: int = CELL) -> Cells:
    """The mean colour of each cell, rows x columns x 3; the last row and column may be of smaller cells."""
    import numpy as np

    drawn = picture.info["pixels"][0] / picture.size[0]
    return np.asarray(picture.reduce(max(1, round(size / drawn))), dtype=np.int16)


def _packed(cells: Cells) -> NDArray[np.int32]:
    """One number for each cell's colour in steps of 24."""
    import numpy as np

    steps = (cells.astype(np.int32) + COLOUR_LEVEL // 2) // COLOUR_LEVEL
    packed: NDArray[np.int32] = steps[..., 0] * 256 + steps[..., 1] * 16 + steps[..., 2]
    return packed


def _medians(channel: NDArray[np.uint8]) -> NDArray[np.int16]:
    """The middle value of each 4 x 4 square (8 x 8 pixels of the frame); a border of less is filled by repetition."""
    import numpy as np

    rows, columns = -(-channel.shape[0] // 4), -(-channel.shape[1] // 4)
    padding = ((0, rows * 4 - channel.shape[0]), (0, columns * 4 - channel.shape[1]))
    whole = np.pad(channel, padding, mode="edge") if any(after for _, after in padding) else channel
    squares = whole.reshape(rows, 4, columns, 4).transpose(0, 2, 1, 3).reshape(rows, columns, 16)
    return np.partition(squares, 8, axis=2)[..., 8].astype(np.int16)


# -- connected regions ----------------------------------------------------------------------------------------------


class _Region(msgspec.Struct, kw_only=True):
    label: int
    left: int
    top: int
    right: int
    bottom: int
    cells: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def box(self) -> Box:
        return _box(self.left, self.top, self.right, self.bottom)


def _box(left: int, top: int, right: int, bottom: int) -> Box:
    return Box(
        x=float(left * CELL), y=float(top * CELL), width=float((right - left) * CELL),
        height=float((bottom - top) * CELL),
    )  # fmt: skip


def _runs(labels: NDArray[np.int32], lone: bool, mask: bool) -> Iterator[tuple[int, int, int, int]]:
    """Row, first column, column after the last, and label, of each row's runs of equal labels.

    Without `lone` the cells that are like none of their neighbours are left out: most runs of a busy picture. Of a
    `mask` the zeros are left out.
    """
    import numpy as np

    rows, columns = labels.shape
    starts = np.ones(labels.shape, dtype=bool)
    starts[:, 1:] = labels[:, 1:] != labels[:, :-1]
    flat = np.flatnonzero(starts)
    ends = np.append(flat[1:], rows * columns)
    if not lone:
        alike = np.zeros(labels.shape, dtype=bool)
        upright = labels[1:] == labels[:-1]
        alike[1:] |= upright
        alike[:-1] |= upright
        kept = (ends - flat > 1) | alike.ravel()[flat]
        flat, ends = flat[kept], ends[kept]
    if mask:
        kept = labels.ravel()[flat] != 0
        flat, ends = flat[kept], ends[kept]
    yield from zip(
        (flat // columns).tolist(), (flat % columns).tolist(), ((ends - 1) % columns + 1).tolist(),
        labels.ravel()[flat].tolist(), strict=True,
    )  # fmt: skip


def _regions(labels: NDArray[np.int32], *, lone: bool = False, mask: bool = False) -> list[_Region]:
    """The regions of equal labels that touch by an edge, from runs joined row by row (union-find)."""
    runs = list(_runs(labels, lone, mask))
    parent = list(range(len(runs)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    above = 0
    for index, (row, left, right, label) in enumerate(runs):
        while runs[above][0] < row - 1 or (runs[above][0] == row - 1 and runs[above][2] <= left):
            above += 1
        other = above
        while runs[other][0] == row - 1 and runs[other][1] < right:
            if runs[other][3] == label:
                one, two = root(index), root(other)
                if one < two:
                    parent[two] = one
                else:
                    parent[one] = two
            other += 1
    found: dict[int, _Region] = {}
    for index, (row, left, right, label) in enumerate(runs):
        region = found.get(place := root(index))
        if region is None:
            found[place] = _Region(label=label, left=left, top=row, right=right, bottom=row + 1, cells=right - left)
            continue
        region.left, region.right = min(region.left, left), max(region.right, right)
        region.bottom, region.cells = row + 1, region.cells + right - left
    return list(found.values())


def _fits(region: _Region, rows: int, columns: int) -> bool:
    area = region.width * region.height
    return (
        area >= 2
        and region.cells >= (MIN_CANDIDATE_CELLS if min(region.width, region.height) > 1 else 2)
        and area <= MAX_CANDIDATE_SHARE * rows * columns
        # A thin line or a frame around something else is no place to click.
        and region.cells * 5 >= area
        and max(region.width, region.height)
        <= (6 if min(region.width, region.height) == 1 else 20) * min(region.width, region.height)
    )


def _touched(box: Box, moved: list[Box]) -> bool:
    return any(
        box.x < other.x + other.width
        and other.x < box.x + box.width
        and box.y < other.y + other.height
        and other.y < box.y + box.height
        for other in moved
    )
