"""Warnings where a filter makes them errors (``python -W error``, pytest's ``filterwarnings``): let pass, and kept."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def lifted() -> Iterator[list[str]]:
    """While the block runs, no warning is raised as an error; what would have been is in the list at its end.

    Filters are the whole process's: where none makes errors, they are not touched, and a step of the user's is never
    to run inside.

    Example:
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error")
        ...     with lifted() as kept:
        ...         warnings.warn("old", FutureWarning)
        >>> kept
        ['FutureWarning: old']
    """
    kept: list[str] = []
    if not any(action == "error" for action, *_ in warnings.filters):
        yield kept
        return
    heard: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            heard = caught
            warnings.filters[:] = [("always" if one[0] == "error" else one[0], *one[1:]) for one in warnings.filters]  # type: ignore[index]
            warnings.simplefilter("default", append=True)  # Python looks at the filters anew
            yield kept
    finally:
        for one in heard:
            with contextlib.suppress(Warning):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
                continue
            kept.append(f"{one.category.__name__}: {one.message}")
