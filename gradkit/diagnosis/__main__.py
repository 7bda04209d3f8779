"""Print what a diagnosis rests on: for whoever looks for the reason why a wrong line was named.

``python -m gradkit.diagnosis train.py:step`` takes the arguments of ``gradkit diagnose``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial

from gradkit import cli
from gradkit.cli import FINDINGS, HEALTHY, add_loading, load_step
from gradkit.core import attempts, console, printable
from gradkit.core.arguments import Parser
from gradkit.core.i18n import words
from gradkit.core.records import Finding, Location
from gradkit.core.trace import Call, Region, Trace
from gradkit.diagnosis import pipeline
from gradkit.diagnosis.experiments import plan
from gradkit.diagnosis.facts import cuts, inventory
from gradkit.diagnosis.pipeline import Diagnosis, Options
from gradkit.source import locations, returns

MOST, MOST_NAMES = 20, 3
"""How many entries of a list, and how many names in a line, are printed without ``--all``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Diagnose a step and print what the diagnosis rests on.

    Args:
        arguments: the words of ``gradkit diagnose``; None for those of this process.

    Returns:
        The exit status, as of ``gradkit diagnose``.
    """
    return cli.main(arguments, parse=_parse)


def _parse(given: list[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m gradkit.diagnosis.__main__", description=words("debug.about"))
    parser.add_argument("--language", metavar="en|zh", help=words("cli.language"))
    add_loading(parser)
    parser.add_argument("--all", action="store_true", help=words("debug.all"))
    parser.set_defaults(run=_run)
    return parser.parse_args(given)


def _run(options: argparse.Namespace) -> int:
    with console.program_output_aside(), attempts.refusing():
        patterns = inventory.patterns(options.should_train)
        how = Options(replay=not options.no_replay, should_train=patterns)
        (said, healthy), _ = pipeline.run(load_step(options), how, partial(_told, everything=options.all))
    console.say(said, end="")
    return HEALTHY if healthy else FINDINGS


def _told(found: Diagnosis, *, everything: bool) -> tuple[str, bool]:
    return text(found, everything=everything), not found.findings


def text(found: Diagnosis, *, everything: bool = False) -> str:
    """What a diagnosis rests on: calls, ways with their prices, experiments, and the rule behind each finding.

    Args:
        everything: shorten nothing.
    """
    return _Page(found, everything).text()


class _Page:
    def __init__(self, found: Diagnosis, everything: bool) -> None:
        self._found, self._everything = found, everything
        self._trace = found.evidence.trace

    def text(self) -> str:
        """All of it."""
        label, loss = self._found.label or "step", self._found.evidence.first.value or "-"
        lines = [words("debug.head", label=_name(label), loss=_name(loss), runs=self._found.runs)]
        for part in ("calls", "ways", "experiments", "findings"):
            entries = list(getattr(self, f"_{part}")()) or [words("debug.none")]
            lines += ["", words(f"debug.{part}"), *(f"  {entry}" for entry in entries)]
        lines += [words(f"untried.{one.what}", error=_name(one.error)) for one in self._found.untried]
        return printable.inert("\n".join(lines)) + "\n"

    def _shortened(self, entries: Sequence[str]) -> list[str]:
        """The first and the last of many entries."""
        if self._everything or len(entries) <= MOST:
            return list(entries)
        left_out = words("debug.left_out", n=len(entries) - MOST)
        return [*entries[: MOST // 2], left_out, *entries[-(MOST // 2) :]]

    def _names(self, names: Iterable[str]) -> str:
        told = [_name(name) for name in names]
        if self._everything or len(told) <= MOST_NAMES:
            return ", ".join(told)
        return words("debug.more", names=", ".join(told[:MOST_NAMES]), count=len(told) - MOST_NAMES)

    # -- parts --------------------------------------------------------------------------------------------------

    def _calls(self) -> list[str]:
        return self._shortened([self._call(call) for call in self._trace.calls])

    def _call(self, call: Call) -> str:
        module = _name(self._trace.modules[call.module]) if call.module >= 0 else ""
        told = "  ".join(filter(None, (_step(call), module, _place(locations.innermost(call.chain)))))
        regions = (self._trace.regions[index] for index in call.regions)
        return "\n      ".join([told, *(words("debug.off", kind=_kind(one), place=_entered(one)) for one in regions)])

    def _ways(self) -> list[str]:
        starved, unconnected = self._found.evidence.starved, self._found.evidence.verdict.unconnected
        same: dict[tuple[float, tuple[cuts.Toll, ...]], list[str]] = {}
        for way in cuts.cheapest(self._trace, [name for name in starved if name not in unconnected]):
            same.setdefault((way.cost, way.tolls), []).append(way.parameter)
        told = [
            "\n    ".join([words("debug.way", names=self._names(names), cost=f"{cost:.2f}"), *self._tolls(tolls)])
            for (cost, tolls), names in same.items()
        ]
        if unconnected:
            told.append(words("debug.unconnected", names=self._names(unconnected)))
        return self._shortened(told)

    def _tolls(self, tolls: Sequence[cuts.Toll]) -> list[str]:
        """The steps of a way; of a long one, those that something is paid at."""
        if self._everything or len(tolls) <= MOST:
            return [self._toll(toll) for toll in tolls]
        paid = [toll for toll in tolls if toll.price or toll.cuts]
        return [*self._shortened([self._toll(one) for one in paid]), words("debug.free", n=len(tolls) - len(paid))]

    def _toll(self, toll: cuts.Toll) -> str:
        call = self._trace.calls[toll.call]
        told = f"{_step(call)}  {_place(locations.innermost(call.chain))}"
        reasons = [_cut(self._trace, kind, index) for kind, index in toll.cuts]
        reasons += [words(f"debug.detour.{one}") for one in toll.detours]
        return f"{told}  {toll.price:.2f}: {', '.join(reasons)}" if toll.price or reasons else told

    def _experiments(self) -> list[str]:
        shown, told = self._found.evidence.shown, []
        for one in plan.EXPERIMENTS:
            said = words(f"debug.experiment.{one.name}")
            if one.name not in shown.made:
                told.append(words("debug.not_made", experiment=said))
                continue
            told.append(words("debug.made", experiment=said, n=shown.runs(one.name), answer=self._answer(one.name)))
        return told

    def _answer(self, name: str) -> str:
        shown = self._found.evidence.shown
        if name == "rerun" and shown.rerun.error:
            return words("debug.showed.raised", error=_name(shown.rerun.error))
        names = _showed(shown, self._trace)[name]
        return words(f"debug.showed.{name}", names=self._names(names)) if names else words("debug.showed.nothing")

    def _findings(self) -> list[str]:
        return [self._finding(one) for one in self._found.findings]

    def _finding(self, one: Finding) -> str:
        proof = words(f"report.{one.proof}")
        text = words("debug.found", cause=one.cause, place=_place(one.location), proof=proof, rule=one.rule)
        if one.alone is None:
            return text
        return words("debug.alone", text=text, n=len(one.alone), total=len(one.parameters))


def _showed(shown: plan.Shown, trace: Trace) -> dict[str, list[str]]:
    """The names of what each experiment found."""
    hooks = {"hooks": shown.hooks, "refused": shown.refused}
    answer = shown.gradients
    ends = [call for _, call in answer.swallowed]
    ends += [trace.calls[index] for index in answer.spoilers if 0 <= index < len(trace.calls)]
    return {
        "mended": sorted(shown.mended.revived or ()),
        "rerun": sorted(shown.rerun.revived or ()),
        "returns": [_place(returns.place(point)) for point in shown.returns.chain],
        "numbers": [_place(locations.innermost(trace.calls[index].chain)) for index in shown.numbers.left],
        "caches": [one.name for one in shown.caches.kept],
        "later": [name for one in shown.later.of_hooks for name in one.parameters],
        "histories": [one.name for one in shown.histories.kept],
        "influence": [*shown.influence.without],
        "recomputed": [_place(locations.innermost(chain)) for chain in shown.recomputed.chains],
        "intermediates": [*shown.intermediates.revived],
        "zeros": [*shown.zeros.woken],
        "terms": sorted({name for names in shown.terms.parameters.values() for name in names}),
        **{name: [p for one in answer.silencers for p in one.parameters] for name, answer in hooks.items()},
        "gradients": [*(one.name for one in answer.dropped), *map(_step, ends)],
    }


def _step(call: Call) -> str:
    return f"#{call.index} {_name(call.name)}"


def _cut(trace: Trace, kind: str, index: int) -> str:
    return f"{_kind(trace.regions[index])} {_entered(trace.regions[index])}" if kind == cuts.REGION else kind


def _kind(region: Region) -> str:
    return f"{region.kind} ({_name(region.via)})" if region.via else region.kind


def _entered(region: Region) -> str:
    return _place(region.place or locations.innermost(region.chain))


def _place(spot: Location | None) -> str:
    """File and line, the file by its path from here where it lies below."""
    if spot is None:
        return "-"
    file = os.path.relpath(spot.file) if os.path.isabs(spot.file) else spot.file
    return f"{_name(spot.file if file.startswith('..') else file)}:{spot.line}"


def _name(text: str) -> str:
    return printable.name(text)


if __name__ == "__main__":
    sys.exit(main())
