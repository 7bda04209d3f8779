"""What a diagnosis found, and the ways to look at it. Words are chosen when it is shown."""
from __future__ import annotations
from dataclasses import dataclass
from gradkit.records import Finding, Parameter, Picture
@dataclass(frozen=True)
class Report:
    findings: tuple[Finding, ...]
    parameters: tuple[Parameter, ...]
    picture: Picture
    label: str = ""
    loss: str = ""
    backward: bool = True
    error: str = ""
    runs: int = 1
    @property
    def healthy(self) -> bool:
        return not self.findings
