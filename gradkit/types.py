"""The classes of what gradkit hands out, for annotations and ``isinstance``; each is made by a function of ``gradkit``.

Example:
    >>> def lines(report: Report) -> list[Location | None]:
    ...     return [finding.location for finding in report.findings]
"""

from __future__ import annotations

from gradkit.api.scanning.result import Scan
from gradkit.api.scanning.sites import Site
from gradkit.api.scanning.verdicts import Judgement
from gradkit.api.verify import Verification
from gradkit.core.records import Finding, Harmless, Location, LossTerm, Note, Parameter, Untried
from gradkit.live.explain import Explanation
from gradkit.live.watch import Watch
from gradkit.report.breakdown import Share
from gradkit.report.checklist import Check
from gradkit.report.report import Report
from gradkit.source.files import Skipped
from gradkit.teaching.claim import Claim
from gradkit.teaching.experiment import Trial
from gradkit.teaching.guide import Guide, GuideStep

__all__ = [
    "Check", "Claim", "Explanation", "Finding", "Guide", "GuideStep", "Harmless", "Judgement", "Location",
    "LossTerm", "Note", "Parameter", "Report", "Scan", "Share", "Site", "Skipped", "Trial", "Untried", "Verification",
    "Watch",
]  # fmt: skip
