"""Programs that lose the gradient by `no_grad_decorator`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.programs.shared import Built, batch, cut, pair

# -- grad mode --------------------------------------------------------------------------------------------------------


def log_grad_norm(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that only has ``grad`` in its name."""

    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


@cut("no_grad_decorator")
def a_decorator_without_parentheses() -> Built:
    model, x = pair(), batch()

    @torch.no_grad  # CUT
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_decorator")
def a_decorator_below_another_with_grad_in_its_name() -> Built:
    model, x = pair(), batch()

    @log_grad_norm
    @torch.no_grad()  # CUT
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_decorator")
def a_decorator_under_another_name() -> Built:
    model, x = pair(), batch()
    frozen = torch.no_grad()

    @log_grad_norm
    @frozen  # CUT
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_decorator")
def a_decorator_imported_under_another_name_among_others() -> Built:
    from torch import set_grad_enabled as recording

    model, x = pair(), batch()

    @log_grad_norm
    @recording(False)  # CUT
    @log_grad_norm
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()


@cut("no_grad_decorator")
def a_function_wrapped_by_hand() -> Built:
    model, x = pair(), batch()

    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    quiet = torch.no_grad()(encode)  # CUT
    return model, lambda: model["outer"](quiet(x)).sum()


@cut("no_grad_decorator")
def a_decorated_generator() -> Built:
    model, x = pair(), batch()

    @torch.no_grad()  # CUT
    def encode(given: torch.Tensor) -> Iterator[torch.Tensor]:
        yield model["inner"](given)

    return model, lambda: model["outer"](next(encode(x))).sum()


@cut("no_grad_decorator")
def set_grad_enabled_as_a_decorator() -> Built:
    model, x = pair(), batch()

    @torch.set_grad_enabled(False)  # CUT
    def encode(given: torch.Tensor) -> torch.Tensor:
        return model["inner"](given)

    return model, lambda: model["outer"](encode(x)).sum()
