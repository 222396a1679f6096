"""Videos whose length and content are known, and the honest word on every way in which one can end badly."""

from __future__ import annotations

import asyncio
import functools
import io
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from drivers.base import Recording
from drivers.recording import (
    FRAMES_PER_SECOND,
    MAX_WAITING_FRAMES,
    Ffmpeg,
    FfmpegMissingError,
    Recorder,
    find_ffmpeg,
    jpeg_size,
    video_seconds,
)

ROOT = Path(__file__).resolve().parents[2]
COLOURS = {"red": (200, 30, 30), "green": (30, 180, 30), "blue": (30, 30, 200)}


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


def frame(colour: str, size: tuple[int, int] = (320, 180)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, COLOURS[colour]).save(stream, "JPEG", quality=80)
    return stream.getvalue()


@pytest.fixture(scope="module")
def ffmpeg() -> Ffmpeg:
    try:
        return find_ffmpeg()
    except FfmpegMissingError as error:
        pytest.skip(str(error))


def colour_at(ffmpeg: Ffmpeg, path: str | Path, second: float) -> str:
    """The name of the colour in the middle of the frame at a second of a video."""
    raw = subprocess.run(
        [ffmpeg.program, "-v", "error", "-nostdin", "-ss", f"{second:.2f}", "-i", str(path), "-frames:v", "1",
         "-f", "image2pipe", "-c:v", "png", "-"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True,
    ).stdout  # fmt: skip
    with Image.open(io.BytesIO(raw)) as picture:
        shown = picture.convert("RGB").getpixel((picture.width // 2, picture.height // 2))
    assert isinstance(shown, tuple)
    return min(COLOURS, key=lambda name: sum(abs(a - b) for a, b in zip(COLOURS[name], shown, strict=True)))


def past(seconds: float) -> float:
    """A beginning that lies so far back that nothing has to be waited for."""
    return time.monotonic() - seconds


async def recorded(folder: Path, frames: list[tuple[float, bytes]], seconds: float, **how: object) -> Recording:
    recorder = Recorder(folder, began=past(seconds), **how)  # type: ignore[arg-type]
    for at, jpeg in frames:
        recorder.frame(jpeg, recorder.began + at)
    return await recorder.stop(recorder.began + seconds)


@in_a_loop
async def test_a_second_of_the_video_is_a_second_of_the_session(tmp_path: Path, ffmpeg: Ffmpeg) -> None:
    frames = [(0.0, frame("red")), (2.0, frame("green")), (2.5, frame("blue"))]
    done = await recorded(tmp_path, frames, 8.0)
    assert (done.status, done.reason) == ("complete", "")
    assert done.path is not None
    assert abs(video_seconds(ffmpeg, Path(done.path)) - 8.0) <= 0.4
    shown = [colour_at(ffmpeg, done.path, second) for second in (0.1, 1.8, 2.15, 2.4, 2.7, 7.8)]
    assert shown == ["red", "red", "green", "green", "blue", "blue"]


@in_a_loop
async def test_no_frame_for_a_while_shortens_nothing_and_the_first_one_is_held_back(
    tmp_path: Path, ffmpeg: Ffmpeg
) -> None:
    done = await recorded(tmp_path, [(3.0, frame("red")), (9.0, frame("blue"))], 12.0)
    assert done.status == "complete"
    assert done.path is not None
    assert abs(video_seconds(ffmpeg, Path(done.path)) - 12.0) <= 0.6
    assert [colour_at(ffmpeg, done.path, second) for second in (0.2, 8.7, 9.3, 11.7)] == ["red", "red", "blue", "blue"]


@in_a_loop
async def test_frames_of_other_sizes_and_odd_ones_go_into_one_video(tmp_path: Path, ffmpeg: Ffmpeg) -> None:
    done = await recorded(tmp_path, [(0.0, frame("red", (321, 181))), (2.0, frame("green", (200, 400)))], 4.0)
    assert done.status == "complete"
    assert done.path is not None
    assert colour_at(ffmpeg, done.path, 3.5) == "green"


@in_a_loop
async def test_frames_after_stop_are_dropped_and_a_second_stop_says_the_same(tmp_path: Path, ffmpeg: Ffmpeg) -> None:
    recorder = Recorder(tmp_path, began=past(2))
    recorder.frame(frame("red"), recorder.began)
    first = await recorder.stop()
    recorder.frame(frame("blue"))
    assert await recorder.stop() is first
    assert recorder.frames_given == 1
    assert first.path is not None
    assert colour_at(ffmpeg, first.path, 1.8) == "red"


@in_a_loop
async def test_no_frame_is_no_video(tmp_path: Path) -> None:
    done = await Recorder(tmp_path).stop()
    assert (done.status, done.reason, done.path) == ("failed", "no frame came", None)
    assert list(tmp_path.iterdir()) == []


@in_a_loop
async def test_bytes_that_are_no_picture_are_counted_and_left_out(tmp_path: Path, ffmpeg: Ffmpeg) -> None:
    recorder = Recorder(tmp_path, began=past(1))
    recorder.frame(b"<html>")
    assert recorder.frames_dropped == 1
    assert (await recorder.stop()).status == "failed"


@in_a_loop
async def test_an_ffmpeg_that_is_killed_leaves_a_playable_part_and_the_reason(tmp_path: Path, ffmpeg: Ffmpeg) -> None:
    recorder = Recorder(tmp_path, began=past(20))
    recorder.frame(frame("red"), recorder.began)
    await until(lambda: recorder._written >= 19 * FRAMES_PER_SECOND)
    await until(lambda: seconds_in(ffmpeg, tmp_path) >= 5)
    assert recorder._child is not None
    recorder._child.kill()
    await until(recorder._given_up.is_set)
    done = await recorder.stop()
    assert done.status == "partial"
    assert "signal 9" in done.reason
    assert done.path is not None
    assert colour_at(ffmpeg, done.path, 3) == "red"


@in_a_loop
async def test_a_program_that_is_no_ffmpeg_fails_with_its_own_words(tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho no such encoder here >&2\nexit 4\n")
    program.chmod(0o755)
    done = await recorded(tmp_path, [(0.0, frame("red"))], 3.0, ffmpeg=Ffmpeg(program=str(program), encoder="libx264"))
    assert done.status == "failed"
    assert "exit code 4" in done.reason
    assert "no such encoder here" in done.reason
    assert done.path is None


@in_a_loop
async def test_an_ffmpeg_that_reads_nothing_never_holds_up_the_play_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.recording.FINISH_SECONDS", 1.0)
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    recorder = Recorder(tmp_path, began=past(600), ffmpeg=Ffmpeg(program=str(program), encoder="libx264"))
    picture = frame("red", (1280, 720))
    slowest = 0.0
    for index in range(300):
        before = time.perf_counter()
        recorder.frame(picture, recorder.began + 500 + index / FRAMES_PER_SECOND)
        slowest = max(slowest, time.perf_counter() - before)
    assert slowest < 0.25
    assert len(recorder._waiting) <= MAX_WAITING_FRAMES
    assert recorder.frames_dropped >= 300 - MAX_WAITING_FRAMES - 1
    done = await recorder.stop()
    assert done.status == "failed"
    assert "did not end within" in done.reason
    assert recorder._child is not None
    assert recorder._child.returncode is not None


@in_a_loop
async def test_a_video_that_reaches_its_limit_of_bytes_is_partial(tmp_path: Path, ffmpeg: Ffmpeg) -> None:
    noisy = [(index / 10, noise(index)) for index in range(40)]
    done = await recorded(tmp_path, noisy, 30.0, max_bytes=400_000)
    assert done.status == "partial"
    assert "400000 bytes" in done.reason
    assert done.path is not None
    assert Path(done.path).stat().st_size < 800_000
    assert video_seconds(ffmpeg, Path(done.path)) > 0


def noise(seed: int) -> bytes:
    import numpy as np

    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (180, 320, 3), dtype=np.uint8)).save(stream, "JPEG")
    return stream.getvalue()


@in_a_loop
async def test_a_full_disk_leaves_what_fitted_and_says_so(tmp_path: Path, ffmpeg: Ffmpeg) -> None:
    # The limit on file sizes is inherited by ffmpeg, which then can write no more, as on a full disk.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    noisy = [(index / 10, noise(index)) for index in range(38)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        done = await recorded(tmp_path, noisy, 3.8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.status in ("partial", "failed")
    assert "ffmpeg ended with" in done.reason
    if done.status == "partial":
        assert done.path is not None
        assert 0 < video_seconds(ffmpeg, Path(done.path)) < 3.8


def seconds_in(ffmpeg: Ffmpeg, folder: Path) -> float:
    files = [path for path in folder.iterdir() if path.suffix in (".mp4", ".webm")]
    return video_seconds(ffmpeg, files[0]) if files else 0.0


async def until(true: Callable[[], bool], limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.02)


WORKER = """
import sys, time
from pathlib import Path
from drivers.recording import Recorder
recorder = Recorder(Path(sys.argv[1]), began=time.monotonic() - 12)
recorder.frame(Path(sys.argv[2]).read_bytes(), recorder.began)
while recorder._written < 115:
    time.sleep(0.02)
print(recorder._child.pid, flush=True)
sys.stdin.read()
"""


@in_a_loop
async def test_a_worker_that_is_killed_leaves_a_playable_video_and_no_process(tmp_path: Path, ffmpeg: Ffmpeg) -> None:
    picture = tmp_path / "frame.jpg"
    picture.write_bytes(frame("green"))
    worker = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
        [sys.executable, "-c", WORKER, str(tmp_path), str(picture)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert worker.stdout is not None and worker.stdin is not None
    child = int(worker.stdout.readline())
    watch = os.pidfd_open(child)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdin.close()
    worker.stdout.close()
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(watch, gone.set)
    await asyncio.wait_for(gone.wait(), 20)
    loop.remove_reader(watch)
    os.close(watch)
    assert seconds_in(ffmpeg, tmp_path) >= 10
    video = next(path for path in tmp_path.iterdir() if path.suffix in (".mp4", ".webm"))
    assert colour_at(ffmpeg, video, 9) == "green"


def test_a_missing_ffmpeg_is_named_with_every_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(FfmpegMissingError, match=r"imageio-ffmpeg: not there; ffmpeg on PATH: not there.*\[video\]"):
        find_ffmpeg(str(tmp_path))


@in_a_loop
async def test_a_missing_ffmpeg_is_a_failed_recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = await recorded(tmp_path, [(0.0, frame("red"))], 2.0)
    assert done.status == "failed"
    assert "playlane[video]" in done.reason


def test_the_size_of_a_jpeg_is_read_from_its_header() -> None:
    assert jpeg_size(frame("red", (321, 181))) == (321, 181)
    assert jpeg_size(b"\x89PNG\r\n") is None
    assert jpeg_size(b"\xff\xd8\xff") is None
