"""Callbacks for trainers that take them: a watch that is open while they train, and knows the model and the optimizer.

None is needed: ``gradkit.watch()`` hears a trainer as it hears any other program. A library is imported when its
callback is asked for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradkit.core.errors import GradkitError
from gradkit.live.watch import Watch

if TYPE_CHECKING:
    from torch import nn


def callback(library: str) -> Any:
    """A callback that watches while a trainer trains.

    Args:
        library: ``"transformers"`` (for Trainer, and trl's trainers) or ``"lightning"``.

    Returns:
        What the library's trainer takes among its ``callbacks``; its ``watch`` is the :class:`Watch`.

    Raises:
        GradkitError: no callback for that library.
        ImportError: the library is not installed.

    Example:
        >>> try: callback("keras")
        ... except GradkitError as error: error.key
        'no_callback'
    """
    if library not in _KINDS:
        raise GradkitError("no_callback", library=library, known=", ".join(_KINDS))
    return _KINDS[library]()()


class _Watching:
    """What the callbacks of all libraries have in common: their watch, which is no part of a copy."""

    library = ""

    def __init__(self) -> None:
        super().__init__()
        self.watch = Watch()

    def begin(self, model: nn.Module | None) -> None:
        """Watch a model from here on; what a run before it has left open ends."""
        self.watch.close()
        self.watch = Watch(model, tell=self.watch.tell).open()

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return callback, (self.library,)

    def __deepcopy__(self, _: dict[int, Any]) -> Any:
        return self


@functools.cache
def _for_transformers() -> type[Any]:
    from transformers import TrainerCallback

    class GradkitCallback(_Watching, TrainerCallback):
        library = "transformers"

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.begin(given.get("model"))

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.watch.close()

    return GradkitCallback


@functools.cache
def _for_lightning() -> type[Any]:
    package = "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"
    kind: Any = importlib.import_module(f"{package}.callbacks").Callback

    class GradkitCallback(_Watching, kind):  # type: ignore[misc]
        library = "lightning"

        def on_fit_start(self, _trainer: Any, pl_module: Any) -> None:
            self.begin(pl_module)

        def on_fit_end(self, _trainer: Any, _module: Any) -> None:
            self.watch.close()

        def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
            self.watch.__exit__(type(exception), exception, exception.__traceback__)

    return GradkitCallback


_KINDS: dict[str, Callable[[], type[Any]]] = {"transformers": _for_transformers, "lightning": _for_lightning}
