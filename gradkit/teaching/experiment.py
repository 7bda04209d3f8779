"""An experiment run, and its verdict: what was believed against what is seen."""

from __future__ import annotations

import contextlib
import json
import linecache
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from gradkit.core.i18n import speaking, words


@dataclass(frozen=True)
class Observation:
    """One observation.

    Attributes:
        key: its name.
        believed: what would be seen if the belief were right, as code; None where it says nothing.
        seen: what is seen, as code.
    """

    key: str
    believed: str | None
    seen: str

    @property
    def as_believed(self) -> bool:
        """Whether it is as believed."""
        return self.believed == self.seen


@dataclass(frozen=True)
class Trial:
    """What a run of an experiment has shown.

    Attributes:
        rows: the observations.
        version: the torch that it ran on.
        device: ``"CPU"``, or the name of the GPU.
        recorded: it was not run here and now; this is what was written down when it was.
        labels: what the observations are called, where they have a better name than their key.
    """

    rows: tuple[Observation, ...]
    version: str = torch.__version__
    device: str = "CPU"
    recorded: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """``"true"`` if all that was believed is seen, ``"false"`` if none of it is, else ``"depends"``."""
        told = {row.as_believed for row in self.rows if row.believed is not None}
        return "depends" if len(told) > 1 else str(told == {True}).lower()

    @property
    def holds(self) -> tuple[str, ...]:
        """The names of the observations that are as believed."""
        return tuple(row.key for row in self.rows if row.believed is not None and row.as_believed)

    def markdown(self, language: str | None = None) -> str:
        """What was seen, line by line, and the verdict, in CommonMark."""
        with speaking(language):
            return "\n".join(map(self._line, self.rows)) + "\n\n" + self.summary()

    def _line(self, row: Observation) -> str:
        mark = "·" if row.believed is None else "✓" if row.as_believed else "✗"
        key = "claims.context" if row.believed is None else "claims.row"
        name = self.labels.get(row.key, row.key)
        return f"- {mark} {words(key, name=name, believed=f'`{row.believed}`', seen=f'`{row.seen}`')}"

    def summary(self, language: str | None = None) -> str:
        """The verdict, and where it was run."""
        with speaking(language):
            verdict, key = words(f"claims.verdict.{self.verdict}"), "recorded" if self.recorded else "ran"
            return words(f"claims.{key}", verdict=verdict, version=self.version, device=self.device)

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def __repr__(self) -> str:
        lines = (
            f"  {row.key}: {row.seen}" + (f" (believed: {row.believed})" if row.believed else "") for row in self.rows
        )
        return "\n".join([self.verdict, *lines])


def judge(believed: Mapping[str, Any], seen: Mapping[str, Any], **facts: Any) -> Trial:
    """What was believed against what is seen.

    Args:
        believed: by name, what would be seen if the belief were right.
        seen: by name, what is seen; what no belief is about is kept as well.
        **facts: further attributes of the trial.

    Raises:
        KeyError: something that was believed was not looked at.

    Example:
        >>> judge({"a": 1, "b": 2}, {"a": 1, "b": 3}).verdict
        'depends'
    """
    if missing := sorted(set(believed) - set(seen)):
        raise KeyError(", ".join(missing))
    rows = (
        Observation(key, repr(believed[key]) if key in believed else None, repr(value)) for key, value in seen.items()
    )
    return Trial(tuple(rows), **facts)


def run_experiment(source: str, name: str = "experiment.py") -> Trial:
    """Run an experiment from its source; random state, grad mode and warnings are afterwards as they were.

    Args:
        source: Python with a mapping ``BELIEVED`` and a function ``observe()``.
        name: what tracebacks call it.

    Raises:
        Exception: whatever the experiment raises.

    Example:
        >>> run_experiment("BELIEVED = {'sum': 5}\\ndef observe():\\n    return {'sum': 2 + 2}").verdict
        'false'
    """
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "experiment"}
    with isolated():
        exec(compile(source, name, "exec"), space)  # noqa: S102  # the reader's own code, in their own kernel
        seen = space["observe"]()
    gpu = "cuda" in source and can("cuda")
    return judge(space["BELIEVED"], seen, device=torch.cuda.get_device_name() if gpu else "CPU")


def from_record(record: str) -> Trial:
    """A run that was written down with :func:`written`."""
    facts = json.loads(record)
    rows = tuple(Observation(**row) for row in facts["rows"])
    return Trial(rows, facts["torch"], facts["device"], recorded=True)


def written(seen: Trial) -> str:
    """A run as JSON, to be told later where it cannot be repeated.

    Example:
        >>> from_record(written(judge({"a": 1}, {"a": 2}))).verdict
        'false'
    """
    rows = [{"key": row.key, "believed": row.believed, "seen": row.seen} for row in seen.rows]
    return json.dumps({"device": seen.device, "torch": seen.version, "rows": rows}, indent=1) + "\n"


def can(need: str) -> bool:
    """Whether this machine has what an experiment needs."""
    return need != "cuda" or torch.cuda.is_available()


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Grad mode is on and warnings are quiet while the block runs; random state, too, is afterwards as it was."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        yield
