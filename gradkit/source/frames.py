"""Which line of the user's own code is running, and which file is theirs: a file, or a cell of the running notebook.

While the user's code runs, only code objects and instruction offsets are kept (``chain``);
lines, columns and text are looked up afterwards (``locations.locate``).
"""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from gradkit.core import i18n, package
from gradkit.core.trace import Chain, Point
from gradkit.source import editable, installed


def notebook_shell() -> Any:
    """IPython's shell; None outside of a notebook or IPython."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def in_a_terminal() -> bool:
    """Whether IPython runs in a terminal, which shows text alone."""
    return type(notebook_shell()).__name__ == "TerminalInteractiveShell"


def is_cell(file: str) -> bool:
    """Whether IPython gave a cell this file name.

    Example:
        >>> is_cell("/tmp/ipykernel_7/3321010380.py"), is_cell("<ipython-input-2-0956e7f17520>"), is_cell("train.py")
        (True, True, False)
    """
    return "ipykernel_" in file or file.startswith("<ipython")


def cell_name(file: str) -> str:
    """What a person calls a cell: by the number in front of it, from its last run, where IPython knows that.

    Example:
        >>> cell_name("/tmp/ipykernel_7/3321010380.py")
        'notebook cell'
    """
    number = cell_number(file)
    return i18n.words("report.cell_numbered", number=number) if number else i18n.words("report.cell")


def cell_number(file: str) -> str:
    """The number in front of a cell, from its last run; ``""`` where IPython does not know it.

    Example:
        >>> cell_number("/tmp/ipykernel_7/3321010380.py")
        ''
    """
    running = notebook_shell()
    known = running.compile.format_code_name(file) if running is not None else None
    number = re.search(r"\d+", known[1]) if known else None
    return number[0] if number else ""


def cell_now() -> int:
    """The number of the cell that is running, or that ran last; 0 outside of a notebook or IPython."""
    running = notebook_shell()
    return len(running.history_manager.input_hist_raw) - 1 if running is not None else 0


def cell_files() -> tuple[str, ...]:
    """The cells as names of source files (``linecache`` has their text), the last executed first; ``()`` elsewhere."""
    return tuple(dict.fromkeys(reversed([one for one in cells_run() if one])))


def cells_run() -> tuple[str, ...]:
    """The source file of every cell that was executed, in that order: ``""`` where its text is not known any more.

    A cell that was executed twice stands there twice; ``()`` outside of a notebook or IPython.
    """
    running = notebook_shell()
    if running is None:
        return ()
    kept = running.history_manager
    texts = enumerate(zip(kept.input_hist_raw, kept.input_hist_parsed, strict=False))
    return tuple(_file_of_cell(running.compile, *both, number) for number, both in texts)


def _file_of_cell(compiler: Any, raw: str, code: str, number: int) -> str:
    """The name that IPython gave a cell when it ran; its history keeps the texts without the last newlines."""
    for end in ("\n", ""):
        for text in (raw, f"{raw}\n"):
            name = str(compiler.get_code_name(text, f"{code}{end}", number))
            if name in linecache.cache:
                return name
    return ""


_HERE = str(package.FOLDER)
_OURS = tuple(os.path.join(_HERE, name) + os.sep for name in ("cases", os.path.join("teaching", "guides")))
_TYPED = ("<stdin>", "<console>", "<ipython-input", "<python-input", "<doctest")
_LIBRARIES = tuple(
    {os.path.realpath(path) + os.sep for key, path in sysconfig.get_paths().items() if key in ("stdlib", "platstdlib")}
)

_MOST = 1000  # frames of the user's that are told apart; only with a raised recursion limit there can be more


@functools.cache
def is_user_file(filename: str) -> bool:
    """Whether a file is the user's own: no installed package, no standard library, not gradkit itself.

    Example:
        >>> is_user_file("/home/ann/train.py"), is_user_file(os.__file__)
        (True, False)
    """
    if filename.startswith("<"):
        return filename.startswith(_TYPED)
    path = os.path.realpath(filename)
    if path.startswith(_OURS):
        return True
    return not path.startswith((_HERE + os.sep, *_LIBRARIES, *_torch())) and not installed.is_installed(path)


@functools.cache
def _torch() -> tuple[str, ...]:
    """The folder of torch, which may be built in a clone; ``()`` where it was never imported."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return (os.path.dirname(os.path.realpath(file)) + os.sep,) if file else ()


class Outside:
    """A frame that is waiting for what it called, and what was found from there outwards, once it was asked for.

    Hold it no longer than the frame runs.
    """

    __slots__ = ("found", "frame")

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        self.found: tuple[Chain, Chain] | None = None


def chain(frame: FrameType | None, stop: CodeType, waiting: Sequence[Outside] = ()) -> Chain:
    """The user's frames from ``frame`` outwards up to the code object ``stop``, innermost first.

    If there is none (the whole step lives in an installed library), the innermost frame that is
    neither torch's nor gradkit's stands in for them.

    Args:
        waiting: frames further out, innermost last, from where on the way out need not be looked up anew.
    """
    return chains(frame, stop, waiting)[0]


def chains(frame: FrameType | None, stop: CodeType, waiting: Sequence[Outside] = ()) -> tuple[Chain, Chain]:
    """As ``chain``; and the frames of installed libraries that the innermost of the user's has led to, likewise."""
    found, through = _outwards(frame, stop, waiting, len(waiting) - 1)
    if found or not through:
        return found, through
    return through[:1], ()


def _outwards(frame: FrameType | None, stop: CodeType, waiting: Sequence[Outside], last: int) -> tuple[Chain, Chain]:
    """The user's frames, and those of installed libraries inside of them all."""
    found, through, met = _stretch(frame, stop, waiting[last].frame if last >= 0 else None)
    if not met:
        return found, through
    return _joined(found, through, waiting[last].found or _from(waiting, last, stop))


def _from(waiting: Sequence[Outside], last: int, stop: CodeType) -> tuple[Chain, Chain]:
    """As ``_outwards``, from a frame that is waiting: those further out are not looked up anew, nor by recursion."""
    first = last
    while first >= 0 and waiting[first].found is None:
        first -= 1
    known = waiting[first].found if first >= 0 else None
    for at in range(first + 1, last + 1):
        found, through, met = _stretch(waiting[at].frame, stop, waiting[at - 1].frame if at else None)
        whole = _joined(found, through, known) if met and known is not None else (found, through)
        waiting[at].found = known = whole
    return known if known is not None else ((), ())


def _joined(found: Chain, through: Chain, outer: tuple[Chain, Chain]) -> tuple[Chain, Chain]:
    rest, between = outer
    if found:
        return (*found, *rest)[:_MOST], through
    return rest, (*through, *between)[:_MOST]


def _stretch(frame: FrameType | None, stop: CodeType, mark: FrameType | None) -> tuple[Chain, Chain, bool]:
    """The user's frames up to ``mark``, those of libraries inside of them all, and whether ``mark`` was met."""
    points: list[Point] = []
    through: list[Point] = []
    while frame is not None and frame is not mark:
        code = frame.f_code
        if code is stop:
            return tuple(points), tuple(through), False
        kind = _kinds.get(code.co_filename, -1)
        if kind < 0:
            kind = _kind(code.co_filename)
        if kind == 2:
            points.append((code, frame.f_lasti))
            if len(points) == _MOST:
                return tuple(points), tuple(through), False
        elif kind == 1 and not points and len(through) < _MOST:
            through.append((code, frame.f_lasti))
        frame = frame.f_back
    return tuple(points), tuple(through), frame is not None


def note_program(path: str) -> None:
    """Remember a file that a person has named as the program: what was said of other files may be otherwise now."""
    editable.note_program(path)
    is_user_file.cache_clear()
    _kinds.clear()


def is_torch_file(filename: str) -> bool:
    """Whether a file is torch's own, Python's or gradkit's."""
    return _kind(filename) == 0


_kinds: dict[str, int] = {}


def _kind(filename: str) -> int:
    """2 the user's, 1 an installed library's, 0 torch's, Python's or gradkit's."""
    kind = _kinds.get(filename, -1)
    if kind >= 0:
        return kind
    if is_user_file(filename):
        kind = 2
    elif filename.startswith("<") or (path := os.path.realpath(filename)).startswith((_HERE + os.sep, *_torch())):
        kind = 0
    else:
        kind = 1 if installed.is_installed(path) else 0
    _kinds[filename] = kind
    return kind


def building(chain: Chain) -> int:
    """How many frames, from the innermost, belong to objects that are being built inside of a ``forward``; 0 for none.

    Example:
        >>> building(())
        0
    """
    names = [code.co_name for code, _ in chain]
    end = next((i for i, name in enumerate(names) if name in ("forward", "__call__")), len(names))
    return max((i + 1 for i in range(min(end, len(names) - 1)) if names[i] == "__init__"), default=0)
