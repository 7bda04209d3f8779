"""Python runs this before a program that ``gradkit run`` starts: its folder stands first on ``PYTHONPATH``.

It needs the standard library alone, and makes do with an old Python: a child of the program may run in another
environment. Neither torch nor gradkit is imported before the program itself has imported torch. Nothing is done in
processes that ``multiprocessing`` starts, nor in those that a program starts for itself.
"""

from __future__ import annotations

import atexit
import json
import os
import sys

TYPE_CHECKING = False  # typing itself is not imported: the program may be the first to do so
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

VARIABLE = "GRADKIT_RUN"
"""Private: what ``gradkit run`` was told, as JSON; :mod:`gradkit.live.launch` writes it."""

HERE = os.path.dirname(os.path.abspath(__file__))
ROOM = os.path.dirname(HERE)
PACKAGE = os.path.dirname(ROOM)
OURS = (os.path.join(ROOM, ""), os.path.join(PACKAGE, "witness", ""))


def run_hidden() -> None:
    """Run the ``sitecustomize`` that this one hides, if there is one; what it raises is told by Python as ever."""
    own = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [one for one in sys.path if os.path.abspath(one or ".") != HERE]
    try:
        __import__("sitecustomize")  # the next one on the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


def is_worker() -> bool:
    """Whether ``multiprocessing`` started this process."""
    words = getattr(sys, "orig_argv", [])
    return "--multiprocessing-fork" in words or any("from multiprocessing." in word for word in words)


def without_ours(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """The traceback of an error as it would be without gradkit: frames in which gradkit only called on are left out.

    The import system takes its own frames out of a traceback, but not those around a frame of ours: they go as well.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        _forget_note(one)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
        cleaned = _linked(trace if one is error else one.__traceback__)
        one.__traceback__ = cleaned
        trace = cleaned if one is error else trace
    return trace


def _forget_note(error: BaseException) -> None:
    """The watch has given an error a note, for those who print it elsewhere; here a report follows."""
    explanation = getattr(error, "gradkit_explanation", None)
    notes = getattr(error, "__notes__", None)
    if explanation is not None and notes:
        notes[:] = [one for one in notes if one != explanation.headline()]


def _linked(trace: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    files = [one.tb_frame.f_code.co_filename for one in entries]
    ours = {n for n, file in enumerate(files[:-1]) if file.startswith(OURS)}
    for n in tuple(ours):
        for step in (-1, 1):
            at = n + step
            while 0 <= at < len(files) - 1 and files[at].startswith("<frozen importlib"):
                ours.add(at)
                at += step
    kept = [one for n, one in enumerate(entries) if n not in ours]
    if ours:
        for n, one in enumerate(kept):
            one.tb_next = kept[n + 1] if n + 1 < len(kept) else None
    return kept[0] if kept else None


class Boot:
    """What waits in the program's process: for torch, for an error that nobody catches, and for the end.

    Args:
        told: what ``gradkit run`` was told.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self.home = os.getpid()
        self.program: Any = None  # gradkit.live.program.Program, once torch is there
        self.postponed = self.is_asking = False
        self.before = sys.excepthook
        sys.excepthook = self.excepthook
        atexit.register(self.ended)
        if "torch" in sys.modules:
            self.open()
        else:
            sys.meta_path.insert(0, self)

    # -- torch is imported ---------------------------------------------------------------------------------------

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find torch as the other finders do, and open the watch when it has been imported."""
        if getattr(sys.modules.get("sitecustomize"), "__file__", None) == __file__:  # which it could not do before
            del sys.modules["sitecustomize"]
        if self.postponed and not _gradkit_is_being_imported():
            self.open()
        if name != "torch" or self.is_asking:  # another finder asks all others, as this one does
            return None
        others = (one.find_spec for one in list(sys.meta_path) if one is not self and hasattr(one, "find_spec"))
        self.is_asking = True
        try:
            spec: Any = next(filter(None, (find(name, path, target) for find in others)), None)
        finally:
            self.is_asking = False
        if getattr(spec, "loader", None) is not None and hasattr(spec.loader, "exec_module"):
            self._open_after(spec.loader)
        return spec

    def _open_after(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            run(module)
            self.open()

        try:
            loader.exec_module = exec_module
        except (
            AttributeError
        ):  # a loader of someone's own making, which takes no attributes: errors are told all the same
            self.postponed = True

    def open(self) -> None:
        """Open the watch, or say in one line why there is none; the program goes on in any case."""
        if self.program is not None or os.getpid() != self.home:
            return
        self.postponed = _gradkit_is_being_imported()
        if self.postponed:  # by the program, and it was this that imported torch
            return
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            self.program = _program_module(self.told["root"]).Program(self.told)
        except Exception as error:  # noqa: BLE001  # the program goes on
            self.program = _Absent()
            _say(self.told["absent"].replace("{error}", f"{type(error).__name__}: {error}"))
            return
        self._hear_threads()

    def _hear_threads(self) -> None:
        threading: Any = sys.modules.get("threading")  # torch has imported it
        if not hasattr(threading, "ExceptHookArgs"):
            return
        before = threading.excepthook

        def excepthook(args: Any) -> None:
            kind, error, trace, thread = args
            before(threading.ExceptHookArgs((kind, error, without_ours(error, trace), thread)))
            self.tell(error)

        threading.excepthook = excepthook

    # -- how it ends -----------------------------------------------------------------------------------------------

    def excepthook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Let the hook that was there before print, as it would have without gradkit; then tell what was found."""
        self.before(kind, error, without_ours(error, trace))
        self.tell(error)

    def tell(self, error: BaseException) -> None:
        """Explain an error that nobody caught."""
        if isinstance(error, Exception) and os.getpid() == self.home:
            if self.program is None and "torch" in sys.modules:
                self.open()
            if self.program is not None:
                self.program.failed(error)

    def ended(self) -> None:
        """The program has come to its end, well or not; an error may have gone to a hook that replaced ours."""
        if os.getpid() != self.home:
            return
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if self.program is None and error is not None and "torch" in sys.modules:
            self.open()
        if self.program is not None:
            self.program.ended(error)


class _Absent:
    """Stands for gradkit where it cannot be imported; that was said once."""

    def failed(self, error: BaseException) -> None:
        pass

    def ended(self, error: BaseException | None) -> None:
        pass


def _gradkit_is_being_imported() -> bool:
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "gradkit"]
    return any(getattr(getattr(one, "__spec__", None), "_initializing", False) for one in modules)


def _program_module(root: list[str]) -> Any:
    """``gradkit.live.program``; in the environment of ``gradkit run`` also where only its own folder is known."""
    added = sys.prefix == root[0] and root[1] not in sys.path
    if added:
        sys.path.append(root[1])
    try:
        from gradkit.live import program
    finally:
        if added and root[1] in sys.path:
            sys.path.remove(root[1])
    return program


def _say(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # there is no stderr, or nobody reads it
        pass


def start() -> None:
    """Wait in this process, if it is the program's own or one that it was told to reach."""
    try:
        told = json.loads(os.environ[VARIABLE])
        depth, everywhere = told["depth"], told["everywhere"]
    except (KeyError, TypeError, ValueError):
        return
    if is_worker():
        return
    os.environ[VARIABLE] = json.dumps({**told, "depth": depth + 1})
    if depth == 0 or everywhere or "RANK" in os.environ:
        Boot(told)


if __name__ == "sitecustomize":
    try:
        run_hidden()
    finally:
        start()
