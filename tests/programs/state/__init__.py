"""Programs whose fault is not in the step: flags, optimizers, caches, hooks, and layers that nothing knows of.

A faulty program's lines that a right diagnosis names end in the mark. ``step.should_train`` and ``step.optimizer``,
where they are set, are handed to ``diagnose``.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.programs import entered
from tests.programs.shared import Built, Program

FAULTY: dict[str, Program] = entered(__name__, "faulty")
SOUND: dict[str, Callable[[], Built]] = entered(__name__, "sound")
