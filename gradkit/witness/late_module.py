"""One function of a part of torch that a program may come to use later, heard from the moment it does.

``torch.distributed.fsdp`` and ``torch.distributed.pipelining`` take long to import, so nothing imports them for this.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from gradkit.witness.replaced import Replacements

Hearing = Callable[[Callable[..., Any]], Callable[..., Any]]


class HeardLater:
    """Listens to one function or method.

    Args:
        where: the module, then the attributes that lead to it: ``("torch.x.y", "Stage", "backward")``.
        hearing: is given the original, and makes what stands for it; it gets the original's name.
        knows: an attribute that what holds it must have, as a torch of another version has not; ``""`` for none.

    Example:
        >>> def twice(original): return lambda *args: 2 * original(*args)
        >>> import math
        >>> later = HeardLater(("math", "sqrt"), twice)
        >>> later.open(); math.sqrt(9.0)
        6.0
        >>> later.close(); math.sqrt(9.0)
        3.0
        >>> HeardLater(("no.such.module", "Stage", "backward"), twice).open()
    """

    def __init__(self, where: tuple[str, ...], hearing: Hearing, knows: str = "") -> None:
        self._where, self._hearing, self._knows = where, hearing, knows
        self._replaced: Replacements | None = None

    def open(self) -> None:
        """Listen, if the program has the module by now; may be called again until it has.

        Where this torch has no such attribute, nothing is heard.
        """
        if self._replaced is not None:
            return
        holder: Any = sys.modules.get(self._where[0])
        for name in self._where[1:-1]:
            holder = getattr(holder, name, None)
        original = getattr(holder, self._where[-1], None)
        if original is not None and (not self._knows or hasattr(holder, self._knows)):
            new = functools.wraps(original)(self._hearing(original))
            self._replaced = Replacements([(holder, self._where[-1], new)])
            self._replaced.install()

    def close(self) -> None:
        """Listen no longer."""
        if self._replaced is not None:
            self._replaced.take_back()
        self._replaced = None
