"""What an optimizer does not hold: forgotten, or left out on purpose.

A linear probe hands its optimizer the head alone, and the body that nobody froze gets a gradient all the same; so do
the model behind a prompt, and all that a picture is fitted through. Nothing is wrong there. Accused is only what the
program itself says is to learn: what joined the model after the optimizer was built, an adapter, a part that requires
grad where the rest of its module is frozen, or the smaller part of what could learn, if it stands in the midst of
what does learn or behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gradkit.core.records import Parameter
from gradkit.diagnosis.facts.optimizers import LEFT_OUT
from gradkit.diagnosis.rules.evidence import Evidence

_TWICE = 2


def forgotten(e: Evidence, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the parameters that an optimizer lacks of which something says that they are to learn.

    All of them where the user named what should train, where the optimizer holds none of what learns, where a group of
    it is empty, and where it was built for what is gone since.
    """
    gap = e.first.gap
    if gap.reason != LEFT_OUT or e.facts.explicit or gap.copied is not None or gap.empty or is_a_trainers(e):
        return tuple(names)
    rows = {row.name: row for row in e.rows}
    learning = [row for row in e.rows if row.name not in gap.missing and row.reached]
    if not learning and not gap.beside:
        return tuple(names)
    out = [rows[name] for name in names]
    told = {*_of_adapters(e), *_put_after(e, names), *_left_free(e, out)}
    fewer = [row for row in out if row.name not in told]
    if sum(row.numel for row in fewer) < sum(row.numel for row in learning):
        told.update(_among_what_learns(e, fewer, learning), _behind_what_learns(e, fewer, learning))
    return tuple(name for name in names if name in told)


def spared(e: Evidence, told: Iterable[str]) -> tuple[str, ...]:
    """The parameters that a gradient reaches, that no optimizer holds, and of which nothing says that they should be.

    Args:
        told: those that findings name.
    """
    gap, told = e.first.gap, set(told)
    if not gap.kind or gap.reason != LEFT_OUT:
        return ()
    return tuple(
        row.name
        for row in e.rows
        if row.name in gap.missing and row.should_train and row.reached and not row.same_as and row.name not in told
    )


def is_a_trainers(e: Evidence) -> bool:
    """Whether a Trainer built the optimizer, which takes all that requires grad."""
    built = e.first.gap.built
    return built is not None and built.by.partition(".")[0] in ("transformers", "trl")


def _of_adapters(e: Evidence) -> Iterator[str]:
    return (name for one in e.facts.adapters if one.active for name in one.parameters)


def _put_after(e: Evidence, names: Iterable[str]) -> Iterator[str]:
    """What was seen to come into the model when the optimizer had been built."""
    built = e.first.gap.built
    return (name for name in names if built is not None and e.seen.put_after([name], built.order) is not None)


def _left_free(e: Evidence, out: Iterable[Parameter]) -> Iterator[str]:
    """What requires grad in modules most of which is frozen, of a class that occurs so more than once: adapters.

    Once may be a body that was frozen but for its first layer.
    """
    found: dict[object, dict[str, list[str]]] = {}
    for row in out:
        owner = _owner(row.name)
        for path in (owner, _owner(owner)):
            inside = [one for one in e.rows if _is_in(one.name, path)]
            still = sum(one.numel for one in inside if not one.requires_grad)
            if path and still > sum(one.numel for one in inside if one.requires_grad):
                found.setdefault(e.facts.classes.get(path), {}).setdefault(path, []).append(row.name)
                break
    yield from (n for places in found.values() if len(places) >= _TWICE for names in places.values() for n in names)


def _among_what_learns(e: Evidence, out: Sequence[Parameter], learning: Sequence[Parameter]) -> Iterator[str]:
    """What a module holds itself, where all else of the module learns and that is more."""
    held = {row.name for row in learning}
    lacking = {row.name for row in out}
    for row in out:
        inside = [one for one in e.rows if _is_in(one.name, _owner(row.name)) and one.requires_grad]
        own = [one for one in inside if one.name in lacking and _owner(one.name) == _owner(row.name)]
        others = [one for one in inside if one not in own]
        more = sum(one.numel for one in others) > sum(one.numel for one in own)
        if others and more and all(one.name in held for one in others):
            yield row.name


def _behind_what_learns(e: Evidence, out: Sequence[Parameter], learning: Iterable[Parameter]) -> Iterator[str]:
    """What computes with something that learning parameters have gone into, and was not put into evaluation mode."""
    flowing = {number for call in e.flow_from([_first(row) for row in learning]) for number in call.outputs}
    modes = any(row.training for row in e.rows)
    for row in out:
        number = e.trace.parameters.get(row.name)
        if number is not None and (row.training or not modes):
            if any(flowing.intersection(others) for _, others in e.trace.meeting([number])):
                yield row.name


def _first(row: Parameter) -> str:
    """The name by which a trace knows a parameter that has several."""
    return row.same_as or row.name


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _is_in(name: str, path: str) -> bool:
    return not path or name.startswith(f"{path}.")
