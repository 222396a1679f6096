"""Reports of a campaign: aggregate, comparison of controllers, HTML, JUnit, Markdown, annotations, bundle.

Everything is built from files that are there already; nothing outside the report's own folder is written.
"""

from coordinator.reports.build import (
    FORMATS,
    Report,
    ReportPaths,
    build_reports,
    read_aggregate,
    read_report,
    render,
    render_json,
)
from coordinator.reports.bundle import BundleResult, bundle
from coordinator.reports.comparison import controller_comparison
from coordinator.reports.difference import CampaignDifference, against, render_difference
from coordinator.reports.records import Aggregate, Campaign, PlannedRun, RunRecord
from coordinator.reports.states import run_state

__all__ = [
    "FORMATS",
    "Aggregate",
    "BundleResult",
    "Campaign",
    "CampaignDifference",
    "PlannedRun",
    "Report",
    "ReportPaths",
    "RunRecord",
    "against",
    "build_reports",
    "bundle",
    "controller_comparison",
    "read_aggregate",
    "read_report",
    "render",
    "render_difference",
    "render_json",
    "run_state",
]
