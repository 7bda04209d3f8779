"""A layer that is gone past: its weight is taken out of it and computed with, while its own forward never runs.

So does a fused or chunked path once an adapter stands in the layer's place: ``F.linear(x, self.proj.weight)``. What the
layer would have added to that weight starves, and the line that reads the weight is the one to change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from types import CodeType

from torch import nn

from gradkit.core.records import OBSERVED, Finding, Location, Note
from gradkit.core.trace import Call, Chain, Trace
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import attributes, locations, read_out

_HOLDERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
_PRODUCTS = frozenset(
    "linear bilinear matmul rmatmul imatmul mm bmm mv addmm addmv baddbmm einsum tensordot mul rmul multiply"
    " embedding embedding_bag getitem index_select layer_norm batch_norm group_norm instance_norm rms_norm prelu lstm"
    " gru rnn_tanh rnn_relu scaled_dot_product_attention multi_head_attention_forward".split()
)


def findings(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A finding for each line that computes with what a layer holds, in the place of the layer itself.

    Args:
        names: parameters from which nothing flows into the loss.
    """
    mine = [row.name for row in e.rows if row.name in set(names) and not row.used and row.name not in e.facts.left]
    from_data = _from_data(e.trace) if mine else set()
    words = {one.rpartition(".")[2] for one in e.trace.parameters}
    groups: dict[object, tuple[Chain, Location | None, dict[str, None], list[str]]] = {}
    for name in mine:
        path, chain = _past(e, name, from_data)
        if chain:
            read = read_out.read_at(chain, words)
            spot = (locations.line_of(chain[0]), chain[0][0].co_filename)
            place = (read.line, read.file) if read is not None else spot
            known = groups.setdefault(place, (chain, read, {}, []))
            known[2].setdefault(path)
            known[3].append(name)
    return [_finding(e, *group) for group in groups.values()]


def _finding(e: Evidence, chain: Chain, read: Location | None, paths: Iterable[str], names: Sequence[str]) -> Finding:
    call = _call_at(e, chain)
    spot, attribute = attributes.definition(e.way_to(names[0]), e.files, e.built_on(names[0]))
    notes = [*called_by(chain), *([Note("defined", spot, {"attribute": attribute})] if spot and attribute else [])]
    notes += [Note("used_past", locations.locate(chain[0]), {"call": call})] if read is not None else []
    return Finding(
        "trainable_unused", read or locations.locate(chain[0]), tuple(notes), proof=OBSERVED, parameters=tuple(names),
        module=next(iter(paths)), call=call, facts={"name": ", ".join(paths)}, variant="bypass",
    )  # fmt: skip


def _call_at(e: Evidence, chain: Chain) -> str:
    return next((call.name for call in e.trace.calls if call.chain == chain), "")


def _past(e: Evidence, name: str, from_data: Collection[int]) -> tuple[str, Chain]:
    """The innermost layer around a parameter that is gone past, and the user's frames where; ``()`` if none is."""
    parts = name.split(".")[:-1]
    for path in (".".join(parts[:depth]) for depth in range(len(parts), 0, -1)):
        if path in e.trace.begun or path not in e.trace.modules:
            break
        held = set(_held(e, path)) if _computes(e.facts.classes[path]) else set()
        if any(held.intersection(call.inputs) for call in e.trace.calls):
            return path, _read_out(e, path, held, from_data)
    beside = (path for path, names in e.facts.attached.items() if name in names and path not in e.trace.begun)
    found = ((path, _read_out(e, path, set(_held(e, path)), from_data)) for path in beside)
    return next((one for one in found if one[1]), ("", ()))


def _computes(cls: type) -> bool:
    """Whether a class has a forward of its own, and is no mere holder of others."""
    return getattr(cls, "forward", None) is not nn.Module.forward and cls not in _HOLDERS


def _held(e: Evidence, path: str) -> Iterator[int]:
    """The numbers of the values that a module, or one inside of it, holds."""
    inside = f"{path}."
    named = {number for name, number in e.trace.parameters.items() if name.startswith(inside)}
    firsts = {e.trace.values[number].parameter for number in named} - {""}
    for number, value in enumerate(e.trace.values):
        if value.parameter in firsts or value.buffer.startswith(inside) or value.attribute.startswith(inside):
            yield number


def _read_out(e: Evidence, path: str, held: Collection[int], from_data: Collection[int]) -> Chain:
    """Where what a module holds is taken out of it and multiplied with data on the way to the loss."""
    own = set(attributes.codes([e.facts.classes[path]]))
    first: dict[int, Chain] = dict.fromkeys(held, ())
    for call in e.trace.calls:
        taken = [number for number in call.inputs if number in first]
        if not taken or _is_owners(e, call, path, taken):
            continue
        inside = any(code in own for code, _ in call.chain)
        met = [number for number in call.inputs if number not in first and number in from_data]
        if inside and met:
            return ()
        chain = next((first[number] for number in taken if first[number]), () if inside or call.through else call.chain)
        if not met:
            first.update(dict.fromkeys(call.outputs, chain))
        elif chain and _is_product(e, call, met) and e.verdict.reaching.intersection(call.outputs):
            found = _from_outside(e, call, path, chain, taken)
            if found:
                return found
    return ()


def _is_owners(e: Evidence, call: Call, path: str, taken: Collection[int]) -> bool:
    """Whether a call is made by another module that holds the same tensor under a name of its own, as tied weights."""
    if call.module < 0:
        return False
    owner = f"{e.trace.modules[call.module]}."
    if owner.startswith(f"{path}."):
        return False
    mine = (name for name, number in e.trace.parameters.items() if number in taken)
    return any(name.startswith(owner) and "." not in name[len(owner) :] for name in mine)


def _is_product(e: Evidence, call: Call, met: Iterable[int]) -> bool:
    """Whether a call multiplies a weight with data, as a layer does: a penalty on the weight does not."""
    values, name = e.trace.values, call.name.strip("_")
    several = any(values[n].shape for n in met) and any(values[n].shape for n in call.outputs)
    return several and (name in _PRODUCTS or name.startswith("conv"))


def _from_outside(e: Evidence, call: Call, path: str, chain: Chain, taken: Iterable[int]) -> Chain:
    """The frames without those of modules inside of the layer.

    Where such a module was called by itself, the layer is one that wraps it only if nothing of that is to learn.
    """
    at = e.trace.modules[call.module] if call.module >= 0 else ""
    if not at.startswith(f"{path}."):
        return chain
    wanted = {row.name for row in e.rows if row.should_train}
    if "." in at[len(path) + 1 :] or any(e.trace.values[number].parameter in wanted for number in taken):
        return ()
    codes: set[CodeType] = set(attributes.codes([e.facts.classes[at]]))
    return chain[next((depth for depth, (code, _) in enumerate(chain) if code not in codes), len(chain)) :]


def _from_data(trace: Trace) -> set[int]:
    """The numbers of the values that something flows into which the model does not hold."""
    values = trace.values
    found = {
        n for n, v in enumerate(values)
        if v.maker < 0 and not (v.parameter or v.buffer or v.attribute or v.stray)
    }  # fmt: skip
    for call in trace.calls:
        if not call.inputs or found.intersection(call.inputs):
            found.update(call.outputs)
    return found
