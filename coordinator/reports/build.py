"""The campaign's reports built from its files: read, aggregate, render, write into `control/report/`."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from coordinator.documents import encode
from coordinator.errors import DamagedError, InvalidInputError
from coordinator.files import Files, read_bounded
from coordinator.reports.aggregate import aggregate_campaign
from coordinator.reports.annotations import render_github
from coordinator.reports.html import render_html
from coordinator.reports.junit import render_junit
from coordinator.reports.markdown import render_markdown
from coordinator.reports.records import Aggregate, Campaign
from coordinator.reports.sources import read_campaign

FORMATS = ("html", "md", "json", "junit", "github")


class ReportPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a built report, absolute."""

    aggregate_json: Path
    aggregate_md: Path
    junit_xml: Path
    html: Path


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign as read, and its report."""

    campaign: Campaign
    aggregate: Aggregate
    report_directory: Path


def read_report(
    control_directory: Path,
    manifest_path: Path,
    *,
    fail_on: str,
    now: str,
    baseline: Collection[str] | None = None,
) -> Report:
    """The report of a campaign, without writing anything.

    `fail_on` as on the command line; `baseline` holds the signatures of an earlier campaign for `new:LEVEL`; `now` is
    the UTC time that the report names. Raises `CoordinatorError`.
    """
    control = Path(os.path.realpath(control_directory))
    if not control.is_dir():
        raise InvalidInputError(f"{control_directory}: there is no such control directory")
    campaign = read_campaign(control, manifest_path)
    directory = control / "report"
    aggregate = aggregate_campaign(
        campaign, report_directory=str(directory), fail_on=fail_on, now=now, baseline=baseline
    )
    return Report(campaign=campaign, aggregate=aggregate, report_directory=directory)


def render(report: Report, form: str) -> bytes:
    """The report in one of `FORMATS`, UTF-8. Raises `InvalidInputError` for another."""
    if form == "html":
        return render_html(report.aggregate, report.campaign, str(report.report_directory)).encode()
    if form == "md":
        return render_markdown(report.aggregate).encode()
    if form == "json":
        return render_json(report.aggregate)
    if form == "junit":
        return render_junit(report.aggregate)
    if form == "github":
        return render_github(report.aggregate).encode()
    raise InvalidInputError(f"format {form!r} is not known; one of {', '.join(FORMATS)} is needed")


def render_json(aggregate: Aggregate) -> bytes:
    """`aggregate.json`: two-space indent, one newline at the end."""
    return encode(aggregate)


def read_aggregate(path: Path) -> Aggregate:
    """An `aggregate.json` that was written before. Raises `CoordinatorError` saying what is wrong with it."""
    try:
        return msgspec.json.decode(read_bounded(str(path)), type=Aggregate)
    except FileNotFoundError as error:
        raise InvalidInputError(f"{path}: there is no aggregate; build that campaign's report first") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedError(f"{path} is no aggregate: {error}") from error


def build_reports(
    control_directory: Path,
    manifest_path: Path,
    *,
    fail_on: str,
    now: str,
    baseline: Collection[str] | None = None,
) -> ReportPaths:
    """Write the four files into `control/report/`, each whole or not at all, readable by their owner only.

    Arguments and errors as `read_report`. Nothing outside that folder is touched; building again gives the same bytes
    for the same files and the same `now`.
    """
    report = read_report(control_directory, manifest_path, fail_on=fail_on, now=now, baseline=baseline)
    files = Files()
    files.make_directory(str(report.report_directory))
    paths = ReportPaths(
        aggregate_json=report.report_directory / "aggregate.json",
        aggregate_md=report.report_directory / "aggregate.md",
        junit_xml=report.report_directory / "junit.xml",
        html=report.report_directory / "report.html",
    )
    for path, form in (
        (paths.aggregate_json, "json"),
        (paths.aggregate_md, "md"),
        (paths.junit_xml, "junit"),
        (paths.html, "html"),
    ):
        files.replace(str(path), render(report, form))
    return paths


__all__ = [
    "FORMATS",
    "Report",
    "ReportPaths",
    "build_reports",
    "read_aggregate",
    "read_report",
    "render",
    "render_json",
]
