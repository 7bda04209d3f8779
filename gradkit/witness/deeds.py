"""What was done, where, and by whose hand: frozen records, with code objects and offsets in place of frames."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType

import torch

from gradkit.core import package
from gradkit.core.trace import Chain, Point
from gradkit.source import installed
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
        from gradkit.source import locations  # not before: who only listens names nothing

        code = self.library[0]
        return ".".join(filter(None, (installed.library_of(code.co_filename), locations.qualified_name(code))))


Noted = tuple[str, Chain, Point | None, dict[str, str], int, tuple[Deed, ...]]
_order = itertools.count(1)
_USER, _LIBRARY, _OURS = 2, 1, 0
_MOST_USERS, _MOST_FRAMES, _MOST_POINTS = 16, 400, 10_000
_TORCH = os.path.dirname(torch.__file__) + os.sep
_kinds: dict[str, int] = {}
TORCHS = set[str]()  # files of torch's own that were asked about: what is called often looks here first
_points: dict[tuple[int, int], Point] = {}  # by the id of the code, which is kept with it
_chains: dict[tuple[int, int], Chain] = {}  # the last that began there


def whose(file: str) -> int:
    """2 for a file of the user's, 1 for an installed library's (torch and Python among them), 0 for gradkit's."""
    kind = _kinds.get(file, -1)
    if kind < 0:
        ours = file.startswith((str(package.FOLDER) + os.sep, "<frozen"))
        kind = _kinds[file] = _USER if is_user_file(file) else _OURS if ours else _LIBRARY
    return kind


def is_torchs(frame: FrameType) -> bool:
    """Whether a frame runs torch's own code."""
    file = frame.f_code.co_filename
    if file in TORCHS:
        return True
    if not file.startswith(_TORCH):
        return False
    TORCHS.add(file)
    return True


def seen_from(frame: FrameType | None) -> tuple[Chain, Point | None]:
    """The user's frames from ``frame`` outwards, innermost first, and the library's frame nearest to them.

    Example:
        >>> import sys
        >>> chain, library = seen_from(sys._getframe())
        >>> chain[0][0].co_filename.startswith("<doctest"), library
        (True, None)
    """
    library: FrameType | None = None
    left = _MOST_FRAMES
    while frame is not None and left:
        file = frame.f_code.co_filename
        kind = _kinds.get(file, -1)
        if kind < 0:
            kind = whose(file)
        if kind == _USER:
            break
        if kind == _LIBRARY:
            library = frame
        frame = frame.f_back
        left -= 1
    chain = _chain(frame, left) if frame is not None and left else ()
    return chain, _point(library.f_code, library.f_lasti) if library is not None else None


def _chain(frame: FrameType, left: int) -> Chain:
    """The user's frames from one of theirs outwards. The same line, called by the same lines, is kept once."""
    number = (id(frame.f_code), frame.f_lasti)
    before = _chains.get(number)
    if before is not None and _is_from(frame, left, before):
        return before
    if len(_chains) >= _MOST_POINTS:
        _chains.clear()
    _chains[number] = chain = tuple(_users(frame, left))
    return chain


def _users(innermost: FrameType, left: int) -> Iterator[Point]:
    frame: FrameType | None = innermost
    users = 0
    while frame is not None and left and users < _MOST_USERS:
        if whose(frame.f_code.co_filename) == _USER:
            users += 1
            yield _point(frame.f_code, frame.f_lasti)
        frame = frame.f_back
        left -= 1


def _is_from(innermost: FrameType, left: int, chain: Chain) -> bool:
    """Whether a chain is what :func:`_users` would find."""
    frame: FrameType | None = innermost
    for code, at in chain:
        while frame is not None and frame.f_code is not code:
            if _kinds.get(frame.f_code.co_filename, _USER) == _USER:
                return False
            frame = frame.f_back
            left -= 1
        if frame is None or frame.f_lasti != at:
            return False
        frame = frame.f_back
        left -= 1
    if left < 0:
        return False
    return frame is None or len(chain) == _MOST_USERS or next(_users(frame, left), None) is None


def _point(code: CodeType, at: int) -> Point:
    """One record for each place: what is made anew for every deed, Python's garbage collector counts."""
    found = _points.get((id(code), at))
    if found is None:
        if len(_points) >= _MOST_POINTS:
            _points.clear()
        found = _points[id(code), at] = (code, at)
    return found


def now() -> int:
    """A number that earlier deeds fall short of, and later ones exceed."""
    return next(_order)


def noted(kind: str, frame: FrameType | None, facts: dict[str, str], before: tuple[Deed, ...] = ()) -> Noted:
    """A deed that is done now, in ``frame``, as it is written down: ``Deed(*noted)`` is made where one is asked for."""
    chain, library = seen_from(frame)
    return kind, chain, library, facts, next(_order), before


def new(kind: str, frame: FrameType | None, facts: dict[str, str], before: tuple[Deed, ...] = ()) -> Deed:
    """A deed that is done now, in ``frame``."""
    return Deed(*noted(kind, frame, facts, before))


def told_again(deed: Deed, kind: str, facts: Mapping[str, str] | None = None) -> Deed:
    """The same happening, as another history tells it, with further facts."""
    return replace(deed, kind=kind, facts={**deed.facts, **(facts or {})})


def noted_again(noted: Noted, kind: str) -> Noted:
    """The same for what is written down."""
    return kind, *noted[1:]
