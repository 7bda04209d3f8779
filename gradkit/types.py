"""The classes of what gradkit hands out, for annotations and ``isinstance``; each is made by a function of ``gradkit``.

Example:
    >>> def lines(report: Report) -> list[Location | None]:
    ...     return [finding.location for finding in report.findings]
"""

from __future__ import annotations

from gradkit.beliefs import Claim
from gradkit.breakdown import Share
from gradkit.checklist import Check
from gradkit.guide import Guide, GuideStep
from gradkit.judgements import Judgement
from gradkit.records import Finding, Harmless, Location, Note, Parameter, Untried
from gradkit.report import Report
from gradkit.scanned import Scan
from gradkit.sites import Site
from gradkit.texts import Skipped
from gradkit.trial import Trial
from gradkit.verification import Verification

__all__ = [
    "Check", "Claim", "Finding", "Guide", "GuideStep", "Harmless", "Judgement", "Location", "Note", "Parameter",
    "Report", "Scan", "Share", "Site", "Skipped", "Trial", "Untried", "Verification",
]  # fmt: skip
