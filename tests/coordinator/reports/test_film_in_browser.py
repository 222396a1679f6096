"""The screens and the video of a run, opened from disk in Chromium: the right ones, at the right second."""

from __future__ import annotations

import asyncio
import io
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from coordinator.reports import build_reports
from coordinator.reports.bundle import bundle
from drivers.recording import FfmpegMissingError, Recorder, find_ffmpeg
from tests.coordinator.reports.browser import a_browser
from tests.coordinator.reports.campaigns import NOW, CampaignOnDisk, a_finding, a_report
from workers.contract import Evidence

COLOURS = ("#c01818", "#18a018", "#1818c0", "#c0a018")
SECONDS_A_STEP = 2.0


def screen(colour: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (320, 180), colour).save(stream, "JPEG", quality=85)
    return stream.getvalue()


async def record(folder: Path) -> str:
    recorder = Recorder(folder, began=time.monotonic() - SECONDS_A_STEP * len(COLOURS))
    for index, colour in enumerate(COLOURS):
        recorder.frame(screen(colour), recorder.began + index * SECONDS_A_STEP)
    done = await recorder.stop(recorder.began + SECONDS_A_STEP * len(COLOURS))
    assert done.status == "complete"
    assert done.path is not None
    return Path(done.path).name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CampaignOnDisk:
    try:
        find_ffmpeg()
    except FfmpegMissingError as error:
        pytest.skip(str(error))
    campaign = CampaignOnDisk(tmp_path_factory.mktemp("film") / "with spaces, ü")
    finding = msgspec.structs.replace(
        a_finding(),
        step=3,
        evidence=[
            Evidence(kind="screenshot", ref="p1", step=3),
            Evidence(kind="video", ref="v1", step=3),
            Evidence(kind="screenshot", ref="p2", step=99),
        ],
    )
    report = a_report("r00000", findings=[finding])
    timeline = [
        {"step": step, "action": "click", "effect": "changed", "findings": [finding.id] if step == 3 else [],
         "at_seconds": (step - 1) * SECONDS_A_STEP + 0.5}
        for step in range(1, len(COLOURS) + 1)
    ]  # fmt: skip
    report = msgspec.structs.replace(report, timeline=timeline)
    run_id = campaign.play(campaign.ask("newcomer", "standard"), report)
    folder = campaign.control / "runs" / run_id
    name = asyncio.run(record(folder))
    (folder / "screenshots").mkdir()
    for step, colour in enumerate(COLOURS, start=1):
        (folder / "screenshots" / f"step-{step}.jpg").write_bytes(screen("#808080" if step == 3 else colour))
    (folder / "screenshots" / "step-3-marked.jpg").write_bytes(screen(COLOURS[2]))
    told = msgspec.json.decode((folder / "report.json").read_bytes())
    told["recording"] = {"status": "complete", "path": name}
    (folder / "report.json").write_bytes(msgspec.json.encode(told))
    campaign.save()
    return campaign


@pytest.fixture(scope="module")
def path(made: CampaignOnDisk) -> Path:
    return build_reports(made.control, made.manifest, fail_on="major", now=NOW).html


@pytest.fixture(scope="module")
def browser(path: Path) -> Iterator[Browser]:
    # After `path`: the video is made in an event loop, and the browser's is not to be there yet.
    assert path.exists()
    with a_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.set_default_timeout(20_000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.goto(path.as_uri() + "#run-0")
    page.wait_for_selector(".film img")
    yield page
    context.close()
    assert [words for words in complaints if "Content Security" in words or words.startswith("error: ")] == []


def test_the_film_shows_each_step_with_the_marked_copy_where_there_is_one(page: Page) -> None:
    pictures = page.locator(".film img")
    assert pictures.count() == len(COLOURS)
    names = [str(one.get_attribute("src")).rsplit("/", 1)[-1] for one in pictures.all()]
    assert names == ["step-1.jpg", "step-2.jpg", "step-3-marked.jpg", "step-4.jpg"]
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        page.wait_for_function("one => one.complete && one.naturalWidth === 320", arg=picture.element_handle())


def test_a_click_on_a_steps_time_moves_the_video_to_it(page: Page) -> None:
    page.wait_for_function("() => document.querySelector('video.screen').readyState >= 1")
    length = page.evaluate("() => document.querySelector('video.screen').duration")
    assert abs(length - SECONDS_A_STEP * len(COLOURS)) <= 0.1 * SECONDS_A_STEP * len(COLOURS)
    moment = page.locator("#run-0-step-3 .moment")
    assert moment.text_content() == "0:04"
    assert str(moment.get_attribute("href")).endswith("#t=4.5")
    moment.click()
    page.wait_for_function(
        "() => { const v = document.querySelector('video.screen'); return !v.seeking && v.readyState >= 2; }"
    )
    assert page.evaluate("() => document.querySelector('video.screen').currentTime") == pytest.approx(4.5, abs=0.05)
    shot = page.locator("video.screen").screenshot()
    with Image.open(io.BytesIO(shot)) as seen:
        red, green, blue = seen.convert("RGB").getpixel((seen.width // 2, seen.height // 3))  # type: ignore[misc]
    assert blue > 120
    assert max(red, green) < 80


def test_the_page_is_no_wider_than_a_phone(page: Page) -> None:
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_a_finding_links_to_its_marked_screenshot_and_its_second_and_says_what_is_missing(page: Page) -> None:
    links = [str(one.get_attribute("href")) for one in page.locator("#finding-1 a[href]").all()]
    assert any(link.endswith("screenshots/step-3-marked.jpg") for link in links)
    assert any(link.endswith("#t=4.5") for link in links)
    assert "missing" in str(page.locator("#finding-1").text_content())


def test_a_screen_or_a_video_that_went_away_is_said(browser: Browser, made: CampaignOnDisk, path: Path) -> None:
    runs = made.control / "runs"
    gone = [*runs.glob("*/screenshots/step-2.jpg"), *runs.glob("*/video.*")]
    kept = {file: file.read_bytes() for file in gone}
    for file in gone:
        file.unlink()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(path.as_uri() + "#run-0")
        page.get_by_text("screenshot missing").wait_for()
        page.get_by_text("The video cannot be played").wait_for()
    finally:
        context.close()
        for file, data in kept.items():
            file.write_bytes(data)


def test_the_bundle_holds_the_film(made: CampaignOnDisk, path: Path, tmp_path: Path) -> None:
    packed = bundle(made.control, tmp_path / "bundle.zip")
    names = {name.split("/", 2)[-1] for name in zipfile.ZipFile(packed.path).namelist()}
    assert {"screenshots/step-1.jpg", "screenshots/step-3-marked.jpg"} <= names
    assert names & {"video.mp4", "video.webm"}
