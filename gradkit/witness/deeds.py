"""What was done, where, and by whose hand: frozen records, with code objects and offsets in place of frames."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import FrameType

import torch

from gradkit.core import package
from gradkit.core.trace import Chain, Point
from gradkit.source.frames import is_user_file

CREATED, REGISTERED, REPLACED, COPIED = "created", "registered", "replaced", "copied"
LOADED, CAST, WRITTEN, FROZEN, THAWED = "loaded", "cast", "written", "frozen", "thawed"
BUILT, HELD, ATTACHED, WRAPPED, SWITCHED = "built", "held", "attached", "wrapped", "switched"
SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that was done to a tensor, a module, an optimizer or the grad mode.

    Attributes:
        kind: of a tensor, ``"created"``, ``"registered"`` (in a module), ``"replaced"`` (another took its place there),
            ``"copied"`` (it is a deep copy), ``"loaded"`` (written from a state dict), ``"cast"``, ``"written"``,
            ``"frozen"``, ``"thawed"``, ``"held"`` (put into an optimizer); of an optimizer, ``"built"`` (a group was
            added), ``"copied"`` or ``"scheduled"`` (a scheduler was built for it); of a module, ``"attached"``,
            ``"replaced"`` or ``"wrapped"``; of the grad mode, ``"switched"``.
        chain: the user's frames, innermost first; ``()`` if there was none.
        library: the library's frame that is nearest to the user's innermost, None if the user's own code did it.
        facts: what the kind has to tell, such as ``{"module": "Linear", "name": "weight"}``.
        order: later deeds have larger numbers.
        before: of a copy, what had been done to the original.
    """

    kind: str
    chain: Chain
    library: Point | None = None
    facts: dict[str, str] = field(default_factory=dict)
    order: int = 0
    before: tuple[Deed, ...] = ()

    @property
    def by(self) -> str:
        """The library's function that the user's line called: ``"peft.get_peft_model"``; ``""`` if there is none.

        Example:
            >>> Deed(FROZEN, (), (Deed.__init__.__code__, 0)).by.endswith("__init__")
            True
        """
        if self.library is None:
            return ""
        code = self.library[0]
        name = getattr(code, "co_qualname", code.co_name).replace("<locals>.", "")
        return ".".join(filter(None, (_package(code.co_filename), name)))


_order = itertools.count(1)
_USER, _LIBRARY, _OURS = 2, 1, 0
_MOST_USERS, _MOST_FRAMES = 16, 400
_TORCH = os.path.dirname(torch.__file__) + os.sep
_kinds: dict[str, int] = {}
_last: Chain = ()


def _package(file: str) -> str:
    """The package that an installed file belongs to: ``"peft"``; ``""`` of Python's own."""
    for folder in ("site-packages", "dist-packages"):
        mark = f"{os.sep}{folder}{os.sep}"
        if mark in file:
            return file.rpartition(mark)[2].split(os.sep)[0].removesuffix(".py")
    return ""


def whose(file: str) -> int:
    """2 for a file of the user's, 1 for an installed library's (torch and Python among them), 0 for gradkit's."""
    kind = _kinds.get(file, -1)
    if kind < 0:
        ours = file.startswith((str(package.FOLDER) + os.sep, "<frozen"))
        kind = _kinds[file] = _USER if is_user_file(file) else _OURS if ours else _LIBRARY
    return kind


def is_torchs(frame: FrameType) -> bool:
    """Whether a frame runs torch's own code."""
    return frame.f_code.co_filename.startswith(_TORCH)


def seen_from(frame: FrameType | None) -> tuple[Chain, Point | None]:
    """The user's frames from ``frame`` outwards, innermost first, and the library's frame nearest to them.

    Example:
        >>> import sys
        >>> chain, library = seen_from(sys._getframe())
        >>> chain[0][0].co_filename.startswith("<doctest"), library
        (True, None)
    """
    global _last
    found: list[Point] = []
    library: FrameType | None = None
    for _ in range(_MOST_FRAMES):
        if frame is None or len(found) == _MOST_USERS:
            break
        code = frame.f_code
        kind = _kinds.get(code.co_filename, -1)
        if kind < 0:
            kind = whose(code.co_filename)
        if kind == _USER:
            found.append((code, frame.f_lasti))
        elif not found and kind == _LIBRARY:
            library = frame
        frame = frame.f_back
    chain = tuple(found)
    if chain == _last:  # one line of the user's often does many things: kept once
        chain = _last
    _last = chain
    return chain, (library.f_code, library.f_lasti) if library is not None else None


def new(kind: str, frame: FrameType | None, facts: dict[str, str], before: tuple[Deed, ...] = ()) -> Deed:
    """A deed that is done now, in ``frame``."""
    chain, library = seen_from(frame)
    return Deed(kind, chain, library, facts, next(_order), before)


def told_again(deed: Deed, kind: str, facts: Mapping[str, str] | None = None) -> Deed:
    """The same happening, as another history tells it, with further facts."""
    return replace(deed, kind=kind, facts={**deed.facts, **(facts or {})})
