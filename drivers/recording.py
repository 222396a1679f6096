"""A video of a session from single frames and their times: an ffmpeg process behind a bounded queue.

The driver hands over JPEG frames as they come; a thread writes one picture for each tenth of a second of wall time,
the last one again where none came, so that a second of the video is a second of the session. The file is a fragmented
MP4 (or WebM): what was written before ffmpeg, the browser or the worker died stays playable.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from pathlib import Path

import msgspec

from drivers.base import Recording

FRAMES_PER_SECOND = 10
MAX_WAITING_FRAMES = 40
MAX_FRAME_BYTES = 8 << 20
MAX_VIDEO_BYTES = 500 << 20
LATE_SECONDS = 0.3
"""How long a frame may be under way before its place in the video is written."""
FINISH_SECONDS = 15.0
LOOK_SECONDS = 10.0
TAIL_BYTES = 2_000
WHOLE_SHARE = 0.9

_ENCODERS = {
    "libx264": (
        ".mp4",
        ("-c:v", "libx264", "-preset", "ultrafast", "-crf", "30", "-pix_fmt", "yuv420p", "-threads", "1",
         "-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-f", "mp4"),
    ),
    "libvpx": (
        ".webm",
        ("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "1M", "-pix_fmt", "yuv420p",
         "-threads", "1", "-live", "1", "-cluster_time_limit", "1000", "-f", "webm"),
    ),
}  # fmt: skip
_TIME = re.compile(rb"time=(\d+):(\d\d):(\d\d(?:\.\d+)?)")


class FfmpegMissingError(Exception):
    """No ffmpeg that can write video was found; the text names every place looked at."""


class Ffmpeg(msgspec.Struct, frozen=True, kw_only=True):
    """A program that can encode: `encoder` is the better one of those it has."""

    program: str
    encoder: str

    @property
    def suffix(self) -> str:
        return _ENCODERS[self.encoder][0]


def find_ffmpeg(path: str | None = None) -> Ffmpeg:
    """The program of the package imageio-ffmpeg, else `ffmpeg` on `path` (None: this process's PATH).

    Raises `FfmpegMissingError`.
    """
    tried = []
    for program, where in (_packaged(), (shutil.which("ffmpeg", path=path), "ffmpeg on PATH")):
        if program is None:
            tried.append(f"{where}: not there")
            continue
        try:
            listed = subprocess.run(
                [program, "-hide_banner", "-encoders"], stdin=subprocess.DEVNULL, capture_output=True,
                timeout=LOOK_SECONDS, check=False,
            ).stdout  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            tried.append(f"{where}: {error}")
            continue
        for encoder in _ENCODERS:
            if f" {encoder} ".encode() in listed:
                return Ffmpeg(program=program, encoder=encoder)
        tried.append(f"{where}: has none of the encoders {', '.join(_ENCODERS)}")
    raise FfmpegMissingError(f"no ffmpeg to record with ({'; '.join(tried)}); install the extra: playlane[video]")


def _packaged() -> tuple[str | None, str]:
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped,import-not-found,unused-ignore]  # an extra, untyped

        return str(imageio_ffmpeg.get_ffmpeg_exe()), "the package imageio-ffmpeg"
    except (ImportError, RuntimeError):
        return None, "the package imageio-ffmpeg"


def video_seconds(ffmpeg: Ffmpeg, path: Path) -> float:
    """How many seconds of a file can be read, 0 for none; reads without decoding."""
    command = [
        ffmpeg.program,
        "-hide_banner",
        "-nostdin",
        "-i",
        str(path),
        "-map",
        "0:v",
        "-c",
        "copy",
        "-f",
        "null",
        "-",
    ]
    try:
        told = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOOK_SECONDS, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0.0
    found = _TIME.findall(told)
    if not found:
        return 0.0
    hours, minutes, seconds = found[-1]
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def jpeg_size(frame: bytes) -> tuple[int, int] | None:
    """Width and height of a JPEG from its frame header (ITU-T T.81, B.2.2), None when there is none."""
    at = 2
    if not frame.startswith(b"\xff\xd8"):
        return None
    while at + 9 < len(frame) and frame[at] == 0xFF:
        marker = frame[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(frame[at + 7 : at + 9]), int.from_bytes(frame[at + 5 : at + 7])
        at += 2 + int.from_bytes(frame[at + 2 : at + 4])
    return None


class Recorder:
    """One video. Made by the driver when the session begins, fed by `frame`, ended by `stop`.

    `began` is the time (`time.monotonic`) that is second 0 of the video; the first frame is held backwards to it. Only
    `stop` waits; `frame` never does, whatever ffmpeg or the disk do. `max_bytes` may be passed by a second of video.
    """

    def __init__(
        self, folder: Path, name: str = "video", *, began: float | None = None, max_bytes: int = MAX_VIDEO_BYTES,
        ffmpeg: Ffmpeg | None = None,
    ) -> None:  # fmt: skip
        self.began = time.monotonic() if began is None else began
        self.frames_given = 0
        self.frames_dropped = 0
        """Lost because ffmpeg was too slow, or no JPEG; one replaced within a tenth of a second is not."""
        self._folder, self._name, self._max_bytes, self._ffmpeg = folder, name, max_bytes, ffmpeg
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._news = threading.Condition()
        self._ends_at: float | None = None
        self._given_up = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._tail = b""
        self._written = 0
        self._fault = ""
        self._path: Path | None = None
        self._result: Recording | None = None

    def frame(self, jpeg: bytes, at: float | None = None) -> None:
        """Take a frame that was shown from `at` on (`time.monotonic`, None: now). Dropped after `stop`."""
        shown = time.monotonic() if at is None else at
        slot = max(0, int((shown - self.began) * FRAMES_PER_SECOND + 1e-6))
        with self._news:
            if self._ends_at is not None:
                return
            self.frames_given += 1
            if len(jpeg) > MAX_FRAME_BYTES or jpeg_size(jpeg) is None:
                self.frames_dropped += 1
                return
            if self._waiting and self._waiting[-1][0] >= slot:
                self._waiting[-1] = (self._waiting[-1][0], jpeg)
            else:
                self._waiting.append((slot, jpeg))
            if len(self._waiting) > MAX_WAITING_FRAMES:
                self._waiting.popleft()
                self.frames_dropped += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="recorder", daemon=True)
                self._thread.start()
            self._news.notify()

    async def stop(self, at: float | None = None) -> Recording:
        """End the video at `at` (None: now), wait for ffmpeg, say what there is. The same answer when called again."""
        with self._news:
            if self._ends_at is None:
                self._ends_at = time.monotonic() if at is None else at
            self._news.notify()
        if self._result is None:
            self._result = await asyncio.to_thread(self._finish)
        return self._result

    # -- the thread -----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            self._feed()
        except FfmpegMissingError as error:
            self._fault = str(error)
        except OSError as error:
            self._fault = self._fault or f"writing to ffmpeg failed: {error.strerror or error}"
        finally:
            self._given_up.set()

    def _feed(self) -> None:
        size = jpeg_size(self._waiting[0][1])
        child = self._start(size or (1280, 720))
        assert child.stdin is not None
        current = b""
        while True:
            with self._news:
                ended = self._ends_at
                now = time.monotonic() - LATE_SECONDS if ended is None else ended
                due = int((now - self.began) * FRAMES_PER_SECOND) + (ended is not None)
                if self._written >= due:
                    if ended is not None:
                        break
                    self._news.wait(1 / FRAMES_PER_SECOND)
                    continue
                current = current or self._waiting[0][1]
                while self._waiting and self._waiting[0][0] <= self._written:
                    current = self._waiting.popleft()[1]
            left = memoryview(current)
            while left:
                left = left[child.stdin.write(left) :]
            self._written += 1
        child.stdin.close()

    def _start(self, size: tuple[int, int]) -> subprocess.Popen[bytes]:
        ffmpeg = self._ffmpeg = self._ffmpeg or find_ffmpeg()
        width, height = (part + part % 2 for part in size)
        fit = (
            f"scale={width}:{height}:force_original_aspect_ratio=decrease,"
            f"pad={width}:{height}:(ow-iw)/2:(oh-ih)/2,setsar=1"
        )
        self._path = self._folder / f"{self._name}{ffmpeg.suffix}"
        command = [
            ffmpeg.program, "-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-f", "image2pipe", "-c:v", "mjpeg",
            "-framerate", str(FRAMES_PER_SECOND), "-i", "pipe:0", "-vf", fit, "-g", str(FRAMES_PER_SECOND),
            "-flush_packets", "1",
            "-fs", str(self._max_bytes), *_ENCODERS[ffmpeg.encoder][1], str(self._path),
        ]  # fmt: skip
        # A session of its own: an interrupt from the keyboard ends the run, and the run ends the video.
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0,
            start_new_session=True, env={"PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(self._child,), name="recorder-log", daemon=True).start()
        return self._child

    def _listen(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stderr is not None
        with child.stderr:
            while data := child.stderr.read(4096):
                self._tail = (self._tail + data)[-TAIL_BYTES:]

    # -- the end --------------------------------------------------------------------------------------------------

    def _finish(self) -> Recording:
        if self._thread is None:
            return Recording(status="failed", reason="no frame came")
        deadline = time.monotonic() + FINISH_SECONDS
        self._thread.join(FINISH_SECONDS)
        slow = self._thread.is_alive()
        child = self._child
        code: int | None = None
        if child is not None:
            try:
                code = None if slow else child.wait(max(0.5, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                slow = True
            if code is None:
                child.kill()
                child.wait()
            self._thread.join()
            assert child.stdin is not None
            with contextlib.suppress(OSError):
                child.stdin.close()
        return self._judged(code, slow)

    def _judged(self, code: int | None, slow: bool) -> Recording:
        path, ffmpeg = self._path, self._ffmpeg
        if path is None or ffmpeg is None:
            return Recording(status="failed", reason=self._fault or "ffmpeg did not start")
        wanted = self._written if self._ends_at is None else (self._ends_at - self.began) * FRAMES_PER_SECOND
        wall = wanted / FRAMES_PER_SECOND
        seconds = video_seconds(ffmpeg, path) if path.exists() else 0.0
        why = self._why(code, slow, path)
        if seconds <= 0:
            return Recording(status="failed", reason=why or "ffmpeg wrote nothing that can be read")
        if why or seconds < WHOLE_SHARE * wall - 1 / FRAMES_PER_SECOND:
            reason = f"{why or 'ffmpeg wrote less than it was given'}; {seconds:.1f} s of {wall:.1f} s are there"
            return Recording(status="partial", reason=reason, path=str(path))
        dropped = f"{self.frames_dropped} of {self.frames_given} frames were dropped" if self.frames_dropped else ""
        return Recording(status="complete", reason=dropped, path=str(path))

    def _why(self, code: int | None, slow: bool, path: Path) -> str:
        tail = " ".join(self._tail.decode("utf-8", "replace").split())[-300:]
        if slow:
            return f"ffmpeg did not end within {FINISH_SECONDS:g} s" + (f": {tail}" if tail else "")
        if code:
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            return f"ffmpeg ended with {ended}" + (f": {tail}" if tail else "")
        if self._fault and path.exists() and path.stat().st_size >= self._max_bytes * WHOLE_SHARE:
            return f"the limit of {self._max_bytes} bytes was reached"
        return self._fault
