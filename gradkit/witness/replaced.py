"""Attributes of torch's classes that are replaced while somebody listens, without anybody else noticing.

What is replaced hears what is called on an object, and hands out the original to whoever asks the class for it:
torch passes ``Tensor.zero_`` to tensor subclasses and function modes, and tables of such functions go by identity. So
a tensor subclass, a mode and a compiler meet the functions that they know. What another has replaced in the meantime
is left in place when the listening ends; ours under it hears nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

_GONE: Any = object()


class HeardMethod:
    """Stands for a method of a class: the original on the class, a hearing one on its objects.

    Args:
        original: the method that it stands for.
        hearing: a function that gets its name; called with the object and the arguments, in place of the original.

    Example:
        >>> class Bell:
        ...     def ring(self): return "ding"
        >>> original = Bell.ring
        >>> def hearing(bell): return original(bell) + " (heard)"
        >>> Bell.ring = HeardMethod(original, hearing)
        >>> Bell().ring(), Bell.ring is original
        ('ding (heard)', True)
    """

    __slots__ = ("hearing", "original")

    def __init__(self, original: Any, hearing: Callable[..., Any]) -> None:
        self.original = original
        self.hearing = hearing
        hearing.__name__ = original.__name__  # by which torch's compiler knows a method of a tensor

    def __get__(self, thing: Any, owner: type | None = None) -> Any:
        return self.original if thing is None else MethodType(self.hearing, thing)


class HeardProperty(property):
    """Stands for an attribute that is written in C: reading goes straight to the original, writing is heard.

    Args:
        original: the attribute that it stands for.
        hearing: called with the object and the value, in place of the original's ``__set__``.
    """

    def __init__(self, original: Any, hearing: Callable[[Any, Any], None]) -> None:
        super().__init__(original.__get__, hearing)
        vars(self).update(__get__=original.__get__, __set__=original.__set__, __doc__=original.__doc__)


class Replacements:
    """Attributes that are put in place together, and taken back together.

    Example:
        >>> class Bell:
        ...     ring = "ding"
        >>> both = Replacements([(Bell, "ring", "dong")])
        >>> both.install(); Bell.ring
        'dong'
        >>> both.take_back(); Bell.ring
        'ding'
    """

    def __init__(self, wanted: list[tuple[Any, str, Any]]) -> None:
        self._wanted = wanted
        self._kept: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> None:
        """Put them in place; does nothing if they are."""
        if self._kept:
            return
        for owner, name, new in self._wanted:
            self._kept.append((owner, name, new, vars(owner).get(name, _GONE)))
            setattr(owner, name, new)

    def take_back(self) -> None:
        """Put back what was there, but for what another has replaced since."""
        while self._kept:
            owner, name, new, old = self._kept[-1]
            if vars(owner).get(name) is new:
                if old is _GONE:
                    delattr(owner, name)
                else:
                    setattr(owner, name, old)
            self._kept.pop()
