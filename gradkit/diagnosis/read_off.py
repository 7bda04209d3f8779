"""What an error of autograd's says by itself, where the step that raised it cannot be run again.

Only errors that are raised at the line to change, or that name what is to be changed, are told, and nothing is proven:

- a leaf or a view that is written, ``numpy()`` of what requires grad, a flag set on an integer or on no leaf: these
  raise at the very line;
- a custom Function or a hook raises, returns what is no gradient, or has a form that torch does not run: the line
  stands in it, or the class is named;
- a gradient scaler that is used out of order raises where it is used;
- an optimizer says that it takes no sparse, or no dense gradients: what asks for such is read off the source;
- ``DistributedDataParallel`` names the parameters that took no part.

A backward that finds no history, a graph that is freed or a value that was overwritten was led there by other lines; to
tell which takes a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from gradkit.core.records import LIKELY, READ, Finding
from gradkit.core.trace import Chain, Trace
from gradkit.diagnosis.facts import model_facts
from gradkit.diagnosis.facts.cuts import Verdict
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.facts.model_facts import ModelFacts
from gradkit.diagnosis.facts.seen import Seen, read
from gradkit.diagnosis.rules import errors
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.tracing import autograd_errors
from gradkit.tracing.autograd_errors import AutogradError
from gradkit.tracing.autograd_graph import AutogradGraph
from gradkit.tracing.backward import Reached

_AT_THE_LINE = frozenset({
    autograd_errors.LEAF_WRITTEN, autograd_errors.VIEW_WRITTEN, autograd_errors.NUMPY_REFUSED,
    autograd_errors.NOT_A_LEAF, autograd_errors.INTEGER_FLAG, autograd_errors.HOOK_REFUSED, autograd_errors.INFERENCE,
    autograd_errors.SCALER, autograd_errors.REDUCTION, autograd_errors.BAD_GRADIENT, autograd_errors.OLD_STYLE,
    autograd_errors.NO_METHOD, autograd_errors.NOT_TAKEN,
})  # fmt: skip


def findings(
    error: AutogradError, files: Sequence[str], callers: Chain, model: nn.Module | None = None
) -> tuple[Finding, ...]:
    """What is likely from the words of an error and the frames that it passed; ``()`` if that is not enough.

    Args:
        files: the user's source files that take part.
        callers: the user's frames around, innermost first.
        model: the one whose parameters the error counts, where there is such.

    Example:
        >>> import torch
        >>> weight = torch.ones(2, requires_grad=True)
        >>> try: weight.clamp_(0, 1)
        ... except RuntimeError as raised: error = autograd_errors.classify(raised, in_step=True)
        >>> [(found.cause, found.proof) for found in findings(error, (), ())]
        [('inplace_modified', 'likely')]
    """
    if error.kind not in _AT_THE_LINE and not error.inside:
        return ()
    nothing = Trace(calls=(), values=(), regions=(), modules=(), loss=-1, parameters={})
    reached = Reached(error=error.message)
    first = FirstRun(nothing, AutogradGraph(), reached, "", error)
    facts, seen = ModelFacts(rows=(), files=tuple(files), callers=callers), Seen()
    if model is not None:
        facts, seen = model_facts.without_a_run(model, reached, files, callers), read(model)
    evidence = Evidence(first=first, facts=facts, verdict=Verdict((), (), (), frozenset()), seen=seen)
    told = [one for one in errors.findings(evidence) if one.location is not None]
    return tuple(
        replace(one, proof=LIKELY, doubt=READ, numel=evidence.numel(one.parameters), rule="read_off.findings")
        for one in told
    )
