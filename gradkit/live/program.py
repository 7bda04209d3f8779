"""In the process of a person's program, from the moment torch is there: what is found is told, once, on stderr.

``boot/sitecustomize.py`` makes the one :class:`Program` of a process, and hands it errors that nobody caught and the
end. Whatever goes wrong in here is told in one line: the program ends as it would have without gradkit.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from gradkit.core import console, i18n
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.live import beside_others
from gradkit.live.launch import SOUND_STEPS, Wishes
from gradkit.live.outcome import Outcome
from gradkit.live.watch import watch
from gradkit.source import faults

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation

MOST_SWALLOWED = 3
MOST_STEPS = 30
MOST_ERRORS = 3
_LAUNCHER = "torch.distributed.run"  # as a program: its ranks speak


class Stopped(SystemExit):
    """The program is ended by gradkit, as it was asked to: at its first finding, or after enough sound steps.

    It goes where ``sys.exit(1)`` goes: ``finally`` and ``with`` are left in order, ``except Exception`` lets it pass.
    """

    def __init__(self) -> None:
        super().__init__(1)


class Program:
    """The watch over a program, and what is told of it.

    Args:
        told: what ``boot/sitecustomize.py`` read: the fields of :class:`Wishes`, and how the process was started.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.wishes = Wishes.read(told)
        self.outcome = Outcome(self.wishes)
        self._is_main = not told["depth"] and not told["everywhere"]
        self._home = os.getpid()
        self._failed: BaseException | None = None
        self._ending = self._busy = self._is_autograds = self._asked = False
        self._stops = self._raised = 0
        self._steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        i18n.language(self.wishes.language)
        self.watch = watch(tell=self._silent)
        beside_others.hold_signals()
        beside_others.keep(self.outcome.ranks)
        if self.wishes.stop or self.wishes.steps or self.wishes.should_train:
            register_optimizer_step_post_hook(self._stepped)
        if self.wishes.outcome:
            torch.autograd.backward = self._counted(torch.autograd.backward)
        atexit.register(self._at_exit)  # the watch's own has been registered before, and comes after it

    # -- what is told -------------------------------------------------------------------------------------------------

    def _silent(self, explanation: Explanation) -> None:
        if self.wishes.should_train:  # it is asked with these names
            return
        if beside_others.found(explanation):
            self.outcome.keep(explanation, self.watch.steps)
        elif not self._is_another_rank():
            self.found(explanation)

    def found(self, explanation: Explanation) -> None:
        """Tell what is sure by now; the files that were asked for get the first finding.

        Raises:
            Stopped: a process waits for the first finding, and this is it.
        """
        if not self.wishes.outcome:
            _tell("\n" + explanation.text())
        self.outcome.keep(explanation, self.watch.steps)
        if self.wishes.outcome and not self._ending:
            self.stop()

    def failed(self, error: BaseException) -> None:
        """An error that nobody caught has been printed: say what autograd has to do with it."""
        if error is not self._failed:
            self._failed = error
            _with_care(lambda: self._explain(error))

    def _explain(self, error: BaseException) -> None:
        from gradkit.live import explain

        beside_others.raising(error)
        explanation = self.watch.explanation_of(error) or explain.of_error(error)
        self._is_autograds = explanation is not None
        if beside_others.raised(explanation):
            self._is_autograds, self._ending = True, True
            if explanation is not None:
                self.outcome.keep(beside_others.as_told(explanation), self.watch.steps)
        elif explanation is not None and not self.outcome.is_of(explanation):
            self._ending = True
            self.found(explanation)

    def ended(self, error: BaseException | None) -> None:
        """The program is over; ``error`` is the last one that nobody caught, None if there was none."""
        self._ending = True
        if error is not None and not isinstance(error, KeyboardInterrupt):
            self.failed(error)
        _with_care(self._close)

    def _at_exit(self) -> None:
        self._ending = True

    def _close(self) -> None:
        self.watch.close()
        spoke = beside_others.end()
        caught = self.watch.caught
        if caught is not None and self._failed is None and not self.outcome.is_of(caught.explanation):
            _say("caught", error=caught.error)
            self.found(caught.explanation)
        steps = self.watch.steps
        if self.outcome.first is None:
            if not self._is_autograds and not spoke:
                self._nothing_found(steps)
        elif self._failed is None and steps and not self.wishes.outcome:
            _say("found", n=steps, verdict=self.outcome.verdict())

    def _nothing_found(self, steps: int) -> None:
        names = ", ".join(self.wishes.should_train)
        is_unknown = names and steps and not self._asked and self._failed is None
        unknown = words("run.not_asked", names=names) if is_unknown else ""
        if self.watch.untold and self._failed is None:
            unknown = unknown or words("run.split", n=self.watch.untold)
        if self.watch.untold_numbers and self._failed is None:
            unknown = unknown or words("run.split_numbers")
        self.outcome.nothing(steps, _shown(self._failed), unknown)
        if unknown and not self.wishes.outcome:
            _tell(words("cli.error", message=unknown))
        elif self.wishes.quiet or self.wishes.outcome or self._is_another_rank():
            pass
        elif steps:
            _say("healthy" if self._failed is None else "error", n=steps)
        elif self._is_main and self._failed is None and _LAUNCHER not in sys.modules:
            _say("no_step")

    @staticmethod
    def _is_another_rank() -> bool:
        """Whether the first of several ranks speaks of what all of them see."""
        return os.environ.get("RANK", "0") != "0"

    # -- the end that was asked for -----------------------------------------------------------------------------------

    def _stepped(self, optimizer: Any, _: Any, __: Any) -> None:
        if self._busy or self._ending or os.getpid() != self._home:
            return
        counts, wishes = self._steps, self.wishes
        counts[optimizer] = counts.get(optimizer, 0) + 1
        self._raised = 0
        if wishes.should_train and counts[optimizer] == SOUND_STEPS:
            self._look_closely(optimizer, sys._getframe(1))
        if self.outcome.first is not None and (wishes.stop or wishes.outcome):
            self.stop()
        if wishes.steps and (min(counts.values()) >= wishes.steps or counts[optimizer] >= MOST_STEPS):
            if not wishes.should_train:
                self._look_closely(optimizer, sys._getframe(1))
            self.stop()

    def _look_closely(self, optimizer: Any, frame: Any) -> None:
        """Diagnose the step that an optimizer has just taken."""
        self._busy = True
        try:
            _with_care(lambda: self._keep_a_look(optimizer, frame))
        finally:
            self._busy = False

    def _keep_a_look(self, optimizer: Any, frame: Any) -> None:
        from gradkit.live import explain

        names = self.wishes.should_train or None
        explanation = explain.of_running(frame, optimizer, after_step=True, should_train=names)
        if explanation is None or explanation.report is None:
            return
        self._asked = True
        if self.wishes.outcome:
            self.outcome.keep(explanation, self.watch.steps)
        elif not explanation.report.healthy and self.outcome.first is None:
            self.found(explanation)

    def _counted(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """One that ends a program which only goes from one error of autograd's to the next, and never takes a step."""

        @faults.on_behalf
        @functools.wraps(backward)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return backward(*args, **kwargs)
            except Exception as error:
                explanation = self.watch.explanation_of(error)
                self._raised += explanation is not None
                if explanation is None or self._raised < MOST_ERRORS or self._ending:
                    raise
            return self.found(explanation)

        return call

    def stop(self) -> None:
        """End the program from here. One that swallows this a few times is ended at once.

        Raises:
            Stopped: in this thread; where that is not the main thread, in that one as well.
        """
        self._stops += 1
        if self.wishes.stop and self._stops == 1:
            _say("stopped")
        if self._stops > MOST_SWALLOWED:
            sys.stdout.flush()
            os._exit(1)
        if threading.current_thread() is not threading.main_thread():
            main = ctypes.c_ulong(threading.main_thread().ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(Stopped))
        raise Stopped


def call(spec: str, arguments: Sequence[str]) -> None:
    """Call a function of a file that trains for a whole run, as a script in its folder would.

    Args:
        spec: ``"train.py:main"`` or ``"package.module:main"``.
        arguments: what ``sys.argv`` holds after the name of the file.

    Raises:
        SystemExit: the function is not there, or needs arguments (status 2); that was said.
    """
    from gradkit.load import specs
    from gradkit.load.signatures import accepts

    try:
        found = specs.find_spec(spec)
        if accepts(found.value).required:
            raise GradkitError("needs_arguments", name=found.label, signature="(...)")
    except GradkitError as error:
        _tell(words("cli.error", message=error.text()))
        raise SystemExit(2) from error
    sys.argv = [found.file, *arguments]
    sys.path[0] = found.folder
    found.value()  # type: ignore[operator]


def _shown(error: BaseException | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}".strip(": ")


def _tell(text: str) -> None:
    console.tell(text.rstrip("\n"))


def _say(key: str, **facts: object) -> None:
    _tell(words("cli.error", message=words(f"run.{key}", **facts)))


def _with_care(task: Callable[[], None]) -> None:
    """Do it; what goes wrong is told in one line, and nothing of it reaches the program."""
    try:
        task()
    except Stopped:
        raise
    except BaseException as error:  # noqa: BLE001  # also Ctrl-C: the program has ended, and with its own status
        _say("own_fault", error=_shown(error))
