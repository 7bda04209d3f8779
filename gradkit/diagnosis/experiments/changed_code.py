"""Let the functions that are alive run changed source, for as long as a block lasts.

The changed text is compiled under the name of its file, and every function whose code differs is given the new code in
place of its own. What holds a function (a class, a partial, a wrapper, a closure) need not be known for that.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import operator
import weakref
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from gradkit.core import patches
from gradkit.core.records import Change, Location
from gradkit.source import changes as source_changes
from gradkit.source import imported, provenance

NO_SOURCE, SETUP, NOT_LIVE, CLOSURE, OVERLAP = "no_source", "setup", "not_live", "closure", "overlap"
Part = tuple[Location, Sequence[Change]]
Piece = Callable[[str], FunctionType | None]
pieces: weakref.WeakKeyDictionary[FunctionType, Piece] = weakref.WeakKeyDictionary()
"""Functions that were cut out of a program, each with what cuts it out of a changed text of that in the same way."""
_MOST_WRAPPERS = 8
_NEW_LOCALS = 2  # set for functions, not for modules and bodies of classes


class CannotTryError(Exception):
    """A change cannot be run: ``why`` names its sentence, ``tried.untried_<why>``."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@contextlib.contextmanager
def running_changed(parts: Sequence[Part], ran: Container[CodeType]) -> Iterator[None]:
    """While the block lasts, the functions of some files are those of their changed text.

    Args:
        parts: changes, each with a place in the file that they are made to.
        ran: the code that the step ran.

    Raises:
        CannotTryError: there is no text of what ran (``"no_source"``), the change is to lines that the step does not
            run (``"setup"``), no function with that code is alive (``"not_live"``), the changed function uses other
            variables from around it (``"closure"``), or two changes are to one line (``"overlap"``).
    """
    put = [one for spot, changes in _by_file(parts) for one in _functions(spot, changes, ran)]
    with patches.undone():
        for function, code, defaults in put:
            patches.later(partial(_put, function, function.__code__, function.__defaults__))
            _put(function, code, defaults)
        yield


def _by_file(parts: Sequence[Part]) -> list[Part]:
    found: dict[str, tuple[Location, list[Change]]] = {}
    for spot, changes in parts:
        known = found.setdefault(spot.file, (spot, []))[1]
        if {one.number for one in known} & {one.number for one in changes}:
            raise CannotTryError(OVERLAP)
        known += changes
    return list(found.values())


def _put(function: FunctionType, code: CodeType, defaults: tuple[Any, ...] | None) -> None:
    function.__code__, function.__defaults__ = code, defaults


def _functions(
    spot: Location, changes: Sequence[Change], ran: Container[CodeType]
) -> list[tuple[FunctionType, CodeType, tuple[Any, ...] | None]]:
    source = imported.source_of(spot)
    if source is None:
        raise CannotTryError(NO_SOURCE)
    alive = _alive(spot.file)
    text = source_changes.applied(source.text, changes)
    marked = (
        [f for f in alive if _is_decorated_at(f.__code__, source.text, spot.line)] if _is_decorator(changes) else []
    )
    found = [*_unwrapped(marked, changes), *(cut := list(_cut_out(alive, text, ran)))]
    run = bool(cut) or any(f.__code__ in ran for f in marked)
    for flags in dict.fromkeys((0, *(f.__code__.co_flags & provenance.FUTURES for f in alive))):
        pairs = _pairs(source.text, text, spot.file, flags)
        new = [(f, code) for f in alive for old, code in pairs if provenance.outline(f.__code__) == old]
        run = run or any(f.__code__ in ran for f, _ in new)
        found += [(f, code, f.__defaults__) for f, code in new if all(f is not known for known, *_ in found)]
    if not run:
        raise CannotTryError(SETUP if found or not _within(spot, alive) else NOT_LIVE)
    if any(f.__code__.co_freevars != code.co_freevars for f, code, _ in found):
        raise CannotTryError(CLOSURE)
    return found


def _cut_out(
    alive: Sequence[FunctionType], text: str, ran: Container[CodeType]
) -> Iterator[tuple[FunctionType, CodeType, tuple[Any, ...] | None]]:
    """The pieces of a program that ran, as they are cut out of a changed text, where that changes them."""
    for piece in (one for one in alive if one in pieces and one.__code__ in ran):
        made = pieces[piece](text)
        if made is not None:
            yield piece, made.__code__, made.__defaults__


def _within(spot: Location, alive: Sequence[FunctionType]) -> bool:
    """Whether a function is alive that begins before a line."""
    return any(f.__code__.co_firstlineno <= spot.line for f in alive)


def _alive(file: str) -> list[FunctionType]:
    """Asked of the type: an object may do anything when it is asked for its class."""
    things = gc.get_objects()  # of millions: so nothing of Python's runs for each
    functions = itertools.compress(things, map(operator.is_, map(type, things), itertools.repeat(FunctionType)))
    return [one for one in functions if one.__code__.co_filename == file]


def _pairs(before: str, after: str, file: str, flags: int) -> list[tuple[tuple[Any, ...], CodeType]]:
    """What tells each function of a text that is changed, and its new code."""
    old, new = (_compiled(text, file, flags) for text in (before, after))
    if old.keys() != new.keys():
        raise CannotTryError(SETUP)
    differ = [name for name, code in old.items() if _behaviour(code) != _behaviour(new[name])]
    return [(provenance.outline(old[name]), new[name]) for name in differ if old[name].co_flags & _NEW_LOCALS]


def _compiled(text: str, file: str, flags: int) -> dict[tuple[str, int], CodeType]:
    """Every code object of a text by its qualified name, and by how many before it have that name."""
    found: dict[tuple[str, int], CodeType] = {}
    seen: dict[str, int] = defaultdict(int)
    for name, code in provenance.compiled(text, file, flags):
        found[name, seen[name]] = code
        seen[name] += 1
    return found


def _behaviour(code: CodeType) -> tuple[Any, ...]:
    """What code does, wherever it stands."""
    inner = tuple(_behaviour(one) if isinstance(one, CodeType) else (type(one), repr(one)) for one in code.co_consts)
    handlers = getattr(code, "co_exceptiontable", b"")
    return code.co_code, handlers, inner, code.co_names, code.co_varnames, code.co_freevars, code.co_flags


# -- a decorator that is gone, or no_grad in its place ----------------------------------------------------------------


def _is_decorator(changes: Sequence[Change]) -> bool:
    return all(change.text.strip().startswith("@") for change in changes)


def _unwrapped(
    marked: Sequence[FunctionType], changes: Sequence[Change]
) -> Iterator[tuple[FunctionType, CodeType, tuple[Any, ...] | None]]:  # fmt: skip
    """Where a decorator of torch's is removed: its wrappers, made to call what they wrap and nothing else.

    Where ``no_grad`` takes its place, they call it without recording.
    """
    instead = _UNRECORDED if any(change.sign == "+" for change in changes) else _PLAIN
    inner = {id(f) for f in marked}
    for thing in gc.get_objects() if inner else ():
        if type(thing) is FunctionType and _switches(thing) and _wraps(thing, inner):
            yield thing, instead.__code__, thing.__defaults__


def _wraps(thing: Any, inner: Container[int]) -> bool:
    """Whether a function wraps one of some others, by way of whatever number of wrappers."""
    for _ in range(_MOST_WRAPPERS):
        thing = vars(thing).get("__wrapped__") if type(thing) is FunctionType else None
        if thing is None or id(thing) in inner:
            break
    return thing is not None and id(thing) in inner


def _is_decorated_at(code: CodeType, text: str, line: int) -> bool:
    """Whether a decorator on a line is one of a function's: those stand between its first line and its ``def``."""
    lines = text.splitlines()
    first = code.co_firstlineno
    return first <= line and all(one.strip().startswith(("@", "#")) for one in lines[first - 1 : line])


def _switches(wrapper: FunctionType) -> bool:
    """Whether a wrapper was made by one of torch's switches of grad mode."""
    if wrapper.__code__.co_freevars != _PLAIN.__code__.co_freevars:
        return False
    factory, _ = (cell.cell_contents for cell in wrapper.__closure__ or ())
    return type(getattr(factory, "__self__", None)).__module__ == "torch.autograd.grad_mode"


def _plain(ctx_factory: Any, func: Any) -> Any:
    """A function with the variables of the wrappers that ``torch.utils._contextlib`` makes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        _ = ctx_factory
        return func(*args, **kwargs)

    return call


def _unrecorded(ctx_factory: Any, func: Any) -> Any:
    """The same, for a wrapper that switches recording off."""

    def call(*args: Any, **kwargs: Any) -> Any:
        _ = ctx_factory
        import torch  # the globals are those of the wrapper whose code this becomes

        with torch.no_grad():
            return func(*args, **kwargs)

    return call


_PLAIN: FunctionType = _plain(None, None)
_UNRECORDED: FunctionType = _unrecorded(None, None)
