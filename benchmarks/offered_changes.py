"""What the offered changes are worth: written into the program, do they give the gradients that were meant?

    python benchmarks/offered_changes.py tests/corpus/faulty [FOLDER ...] [-k WORD] [-v] [--json FILE]

A case is a file with ``make()``, a faulty program as ``(model, step)``, and ``make_fixed()``, the same program as it
was meant; lines that a right diagnosis names end in ``# CUT``, and these marks are taken off before gradkit reads a
line. Each case is diagnosed, what is offered is written into a copy of its file, and that is diagnosed again, until
nothing is offered any more. Then the gradients of the copy's ``make()`` are compared with those of ``make_fixed()``,
parameter by parameter, by their names. Each program runs in a process of its own, with the same seeds and one thread.

A case where something is offered is *equal* if every parameter that has a gradient in the fixed program has the same
direction in the changed one (cosine at least 0.99), and *differs* otherwise. A change that is offered as one that
*waits* for another line of the report, for which there is no change to offer, can not give a gradient by itself; where
that is all that is offered, the case is counted apart. Counted besides, for each change alone and for all together:
*stopped*, a parameter that had a gradient before and has none now; *turned*, one whose gradient points the other way,
and not the way it was meant to; *raises*; *not sound*, something is found in the end; *circle*, a text comes up a
second time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

import gradkit
from gradkit.core.records import WAITS, Change
from gradkit.source.changes import applied

LIMIT = 90  # seconds for one program
EQUAL, AGAINST, TINY = 0.99, -0.5, 1e-6
ROUNDS = 5
MARK = re.compile(r"[ \t]*# CUT$", re.MULTILINE)
Gradients = dict[str, np.ndarray[Any, Any]]


@dataclass
class Offer:
    """A finding: what it says, and the change that is offered with it, ``()`` if none is."""

    cause: str
    line: int
    outcome: str = ""
    why: str = ""
    kind: str = ""
    changes: tuple[Change, ...] = ()


@dataclass
class Case:
    """What came of one case.

    Attributes:
        offers: what was found in the program as it is.
        right: how many of the offered changes are to a marked line, or belong to a finding on one.
        rounds: how often something was offered and applied.
        error: what the changed program raised, or what went wrong else.
        differ: for each parameter that differs from the fixed program, the cosine; None if it has no gradient.
        stopped, turned: the parameters that were harmed by a change alone, or by all together.
        left: the causes that are found in the end.
        circle: whether a text came up a second time.
    """

    name: str
    offers: list[Offer] = field(default_factory=list)
    right: int = 0
    rounds: int = 0
    error: str = ""
    differ: dict[str, float | None] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    turned: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    circle: bool = False

    @property
    def offered(self) -> int:
        """How many findings came with a change."""
        return sum(bool(one.changes) for one in self.offers)

    @property
    def waits(self) -> bool:
        """Whether something that has to be mended by hand stands in the way of all that is offered."""
        return bool(self.offered) and all(one.outcome == WAITS for one in self.offers if one.changes)

    @property
    def equal(self) -> bool:
        """Whether something was offered, and has given the gradients that were meant."""
        return bool(self.offered) and not self.error and not self.differ


# -- in a process of its own ------------------------------------------------------------------------------------------


def forked(work: Callable[..., Any], *given: Any) -> Any:
    """What ``work`` returns, worked out in a forked child; the text of what it raised."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_child, args=(theirs, work, given))
    child.start()
    theirs.close()
    answer: Any = f"no answer in {LIMIT} s"
    if ours.poll(LIMIT):
        try:
            answer = ours.recv()
        except EOFError:
            answer = "the process died"
    child.kill()
    child.join()
    return answer


def _child(pipe: Any, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    torch.set_num_threads(1)
    try:
        pipe.send(work(*given))
    except BaseException as error:  # noqa: BLE001  # whatever a program may do is a result
        pipe.send(f"{type(error).__name__}: {error}"[:300])


def seed(number: int) -> None:
    """All generators that a program may use."""
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def imported(file: Path) -> ModuleType:
    """A file as a module of its own."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    seed(0)
    spec.loader.exec_module(module)
    return module


def built(file: Path, maker: str) -> tuple[ModuleType, torch.nn.Module, Callable[[], torch.Tensor]]:
    """The program of a file."""
    module = imported(file)
    seed(0)
    model, step = getattr(module, maker)()
    return module, model, step


def diagnosed(file: Path) -> list[Offer]:
    """What is found in the faulty program of a file."""
    module, model, step = built(file, "make")
    options: dict[str, Any] = {"optimizer": getattr(step, "optimizer", None)}
    if getattr(module, "SHOULD_TRAIN", None):
        options["should_train"] = list(module.SHOULD_TRAIN)
    found = []
    for one in gradkit.diagnose(step, model=model, **options).findings:
        spot, tried = one.location, one.tried
        here = spot is not None and Path(spot.file).name == file.name
        offer = Offer(one.cause, spot.line if here and spot is not None else 0)
        if tried is not None:
            offer.outcome, offer.why, offer.kind, offer.changes = tried.outcome, tried.why, tried.kind, tried.changes
        found.append(offer)
    return found


def gradients(file: Path, maker: str) -> Gradients:
    """The gradient of each parameter that has one: as the first optimizer took it, else as it is after the step."""
    _, model, step = built(file, maker)
    names = {id(p): name for name, p in model.named_parameters()}
    found: Gradients = {}

    def take(held: Sequence[torch.Tensor]) -> None:
        for one in held:
            if id(one) in names and one.grad is not None:
                grad = one.grad.coalesce().to_dense() if one.grad.is_sparse else one.grad
                found.setdefault(names[id(one)], grad.detach().double().flatten().numpy().copy())

    hook = register_optimizer_step_pre_hook(
        lambda optimizer, *_: take([p for group in optimizer.param_groups for p in group["params"]])
    )
    model.zero_grad()
    seed(1)
    loss = step()
    if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.grad_fn is not None:
        loss.backward(None if loss.numel() == 1 else torch.ones_like(loss))  # type: ignore[no-untyped-call]
    hook.remove()
    names.update({id(p): name for name, p in model.named_parameters()})  # what the step itself has made
    take(list(model.parameters()))
    return found


# -- comparing --------------------------------------------------------------------------------------------------------


def cosine(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """Of two gradients; 1 if both are zero, 0 if one is or if they are not alike in shape."""
    if one.shape != other.shape:
        return 0.0
    norms = [float(np.linalg.norm(x)) for x in (one, other)]
    return 1.0 if not any(norms) else 0.0 if not all(norms) else float(one @ other) / (norms[0] * norms[1])


def differing(after: Gradients, meant: Gradients) -> dict[str, float | None]:
    """What does not learn as it was meant to: the cosine, None without a gradient."""
    found: dict[str, float | None] = {}
    for name, wanted in meant.items():
        if not np.any(wanted) or not np.all(np.isfinite(wanted)):
            continue
        alike = cosine(after[name], wanted) if name in after else None
        if alike is None or not alike >= EQUAL:
            found[name] = alike if alike is None else round(alike, 4)
    return found


def harmed(before: Gradients, after: Gradients, meant: Gradients) -> tuple[list[str], list[str]]:
    """What has learned before, and has stopped; what has turned, and not to where it was meant to."""
    learned = {name: grad for name, grad in before.items() if np.all(np.isfinite(grad)) and np.any(grad)}
    stopped, turned = [], []
    for name, grad in learned.items():
        now = after.get(name)
        if now is None or np.linalg.norm(now) <= TINY * np.linalg.norm(grad):
            stopped.append(name)
        elif cosine(grad, now) < AGAINST and not (name in meant and cosine(now, meant[name]) >= EQUAL):
            turned.append(name)
    return stopped, turned


# -- a case -----------------------------------------------------------------------------------------------------------


class Files:
    """Texts of one case as files, each in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name, self._count = folder, name, 0

    def write(self, text: str) -> Path:
        """A new file with the name of the case."""
        self._count += 1
        file = self._folder / f"{self._name}_{self._count}" / f"{self._name}.py"
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        return file


def together(offers: Sequence[Offer]) -> list[Change]:
    """All changes in the order of their lines; what several offer is made once."""
    lines = list(dict.fromkeys(line for one in offers for line in one.changes))
    return sorted(lines, key=lambda one: (one.number, one.sign != "-"))


def measured(path: Path, folder: Path) -> Case:
    """Diagnose a case, write what is offered, and look at what came of it."""
    marked = path.read_text(encoding="utf-8")
    lines = {n for n, line in enumerate(marked.splitlines(), 1) if line.rstrip().endswith("# CUT")}
    case, files, text = Case(path.stem), Files(folder, path.stem), MARK.sub("", marked)
    original = files.write(text)
    found = forked(diagnosed, original)
    if isinstance(found, str):
        case.error = f"diagnosis: {found}"
        return case
    case.offers = found
    offers = [one for one in found if one.changes]
    case.right = sum(bool({one.line, *(c.number for c in one.changes)} & lines) for one in offers)
    if not offers:
        return case
    before, meant = forked(gradients, original, "make"), forked(gradients, original, "make_fixed")
    before = {} if isinstance(before, str) else before
    if len(offers) > 1:
        for one in offers:
            alone = forked(gradients, files.write(applied(text, one.changes)), "make")
            if not isinstance(alone, str):  # a change that waits for another may well raise
                _note_harm(case, before, alone, meant)
    _follow(case, text, offers, files, before, meant)
    return case


def _follow(
    case: Case, text: str, offers: list[Offer], files: Files, before: Gradients, meant: Gradients | str
) -> None:
    """Write what is offered as long as something is, and compare what has come of it."""
    seen = {text}
    while offers and case.rounds < ROUNDS:
        text = applied(text, together(offers))
        case.rounds += 1
        case.circle = text in seen
        if case.circle:
            return
        seen.add(text)
        file = files.write(text)
        after, found = forked(gradients, file, "make"), forked(diagnosed, file)
        if isinstance(after, str) or isinstance(found, str) or isinstance(meant, str):
            case.error = next(one for one in (meant, after, found) if isinstance(one, str))
            return
        _note_harm(case, before, after, meant)
        case.left, offers = [one.cause for one in found], [one for one in found if one.changes]
        case.differ = differing(after, meant)
        before = {**before, **after}


def _note_harm(case: Case, before: Gradients, after: Gradients, meant: Gradients) -> None:
    stopped, turned = harmed(before, after, meant)
    case.stopped += [name for name in stopped if name not in case.stopped]
    case.turned += [name for name in turned if name not in case.turned]


# -- telling ----------------------------------------------------------------------------------------------------------


def told(case: Case) -> str:
    """One case as a line or two."""
    what = [f"offered {case.offered} of {len(case.offers)} findings, {case.right} on a marked line"]
    what += ["equal"] if case.equal else ["waits"] if case.waits else []
    what += [f"differ {case.differ}"] if case.differ else []
    what += [f"STOPPED {case.stopped}"] if case.stopped else []
    what += [f"TURNED {case.turned}"] if case.turned else []
    what += [f"raises {case.error}"] if case.error else []
    what += [f"not sound: {case.left}"] if case.left else []
    what += [f"{case.rounds} rounds"] if case.rounds > 1 else []
    what += ["CIRCLE"] if case.circle else []
    offers = [f"    {o.cause} {o.line} {o.outcome} {o.why} {o.kind}".rstrip() for o in case.offers]
    return "\n".join([f"{case.name}: {'; '.join(what)}", *offers])


def summed_up(cases: Sequence[Case]) -> str:
    """The figures over all cases."""
    some = [case for case in cases if case.offered]
    findings, offered = sum(len(case.offers) for case in cases), sum(case.offered for case in some)
    counts = {
        "cases": len(cases),
        "diagnosis failed": sum(not case.offers and bool(case.error) for case in cases),
        "findings": findings,
        "  with an offered change": offered,
        "    of these on a marked line": sum(case.right for case in some),
        "cases with an offered change": len(some),
        "  of these all that is offered waits for what has none": sum(case.waits for case in some),
        "  equal to the fixed program": sum(case.equal for case in some),
        "  differ": sum(bool(case.differ) and not case.waits for case in some),
        "  raises": sum(bool(case.error) for case in some),
        "  a parameter stopped": sum(bool(case.stopped) for case in some),
        "  a parameter turned": sum(bool(case.turned) for case in some),
        "  not sound in the end": sum(bool(case.left) for case in some),
        "  circles": sum(case.circle for case in some),
    }
    return "\n".join(f"{name}: {count}" for name, count in counts.items())


def main() -> None:
    """Measure the folders that are named."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folders", nargs="+", type=Path)
    ask.add_argument("-k", default="", help="only cases whose name holds this")
    ask.add_argument("-v", action="store_true", help="tell of every case, not only where something is offered")
    ask.add_argument("--json", type=Path, help="write what came of every case to this file")
    args = ask.parse_args()
    started = time.perf_counter()
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as scratch:
        for folder in args.folders:
            for path in sorted(folder.glob("[!_]*.py")):
                if args.k in path.stem:
                    inside = Path(scratch) / str(len(cases))
                    inside.mkdir()
                    cases.append(measured(path, inside))
                    if args.v or cases[-1].offered or cases[-1].error:
                        print(told(cases[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(case) for case in cases], indent=1), encoding="utf-8")
    print(f"{summed_up(cases)}\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
