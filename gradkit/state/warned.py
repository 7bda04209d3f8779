"""What a process has been warned of, which Python and torch tell once: as it was, whatever a run set off.

Python keeps in ``__warningregistry__`` of each module what was shown of it, as long as no filter changes; any
``catch_warnings`` counts as a change, and all is shown once more. Torch keeps no record that could be put back, but
uses none up while ``torch.set_warn_always`` is on.
Sources: https://docs.python.org/3/library/warnings.html#warnings.catch_warnings,
https://docs.pytorch.org/docs/stable/generated/torch.set_warn_always.html
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import torch

from gradkit.core import patches

_once: dict[Any, Any] = getattr(warnings, "onceregistry", {})
_REGISTRY, _VERSION = "__warningregistry__", "version"
_ENTERED, _LEFT = 2, 1  # how often the filters count as changed in :func:`_probed`, before it asks and after


@contextlib.contextmanager
def untold() -> Iterator[None]:
    """A block after which Python has shown what it had shown before it, no more and no less.

    Example:
        >>> def warn(): warnings.warn("old")
        >>> with warnings.catch_warnings(record=True) as shown:
        ...     warnings.simplefilter("default")
        ...     with untold(): warn()
        ...     warn(); warn()
        >>> len(shown)
        2
    """
    before, back = _probed() - _ENTERED, _remembered()
    try:
        yield
    finally:
        patches.insist(lambda: back(before))


def _remembered() -> Callable[[int], None]:
    """A function that puts back what was shown, as far as that was of the filters' given state."""
    spaces, once = _spaces(), dict[Any, Any](_once)
    kept = {id(space): (space[_REGISTRY], dict(space[_REGISTRY])) for space in spaces if _has_registry(space)}

    def back(before: int) -> None:
        _once.clear()
        _once.update(once)
        now = _probed() + _LEFT
        for space in (*spaces, *_spaces()):
            registry, entries = kept.get(id(space), (None, {}))
            if registry is not None:
                registry.clear()
                registry.update(entries, **({_VERSION: now} if entries.get(_VERSION) == before else {}))
                space[_REGISTRY] = registry
            elif _has_registry(space):
                del space[_REGISTRY]

    return back


def spare_torchs() -> None:
    """Let torch use up none of its warnings that come once in a process, until the block of ``patches`` ends.

    Only where no filter lets them out, or makes errors of them: they come each time.
    """
    patches.later(partial(torch.set_warn_always, torch.is_warn_always_enabled()))
    torch.set_warn_always(True)


def _spaces() -> list[dict[str, Any]]:
    """The global names of all modules, and of the functions that run: a program may run in what is no module."""
    found = [vars(one) for one in list(sys.modules.values()) if isinstance(getattr(one, "__dict__", None), dict)]
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.append(frame.f_globals)
        frame = frame.f_back
    return list({id(one): one for one in found}.values())


def _has_registry(space: dict[str, Any]) -> bool:
    return type(space.get(_REGISTRY)) is dict


def _probed() -> int:
    """How often the filters had changed in the midst of this function; there is no other way to ask."""
    registry: dict[Any, Any] = {}
    was = warnings.filters, warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn_explicit("", Warning, "", 0, registry=registry)
    finally:
        patches.insist(partial(_as_they_were, *was))
    return int(registry.get(_VERSION, 0))


def _as_they_were(filters: Any, show: Any, shown_by: Any) -> None:
    """Put back what an interrupt on the way out of ``catch_warnings`` has left changed."""
    if warnings.filters is not filters:
        warnings.filters = filters
        getattr(warnings, "_filters_mutated", lambda: None)()
    warnings.showwarning = show
    if shown_by is not None:
        setattr(warnings, "_showwarnmsg_impl", shown_by)  # noqa: B010  a name that mypy does not know
