"""What a function, or a model's forward, can be called with."""

from __future__ import annotations

import contextlib
import inspect
import re
from dataclasses import dataclass
from typing import Any, cast

from torch import nn

from gradkit.core import introspection


@dataclass(frozen=True)
class Accepts:
    """What a function can be called with.

    Attributes:
        names: parameters that can be given as keywords.
        required: parameters without a default.
        positional: parameters that can be given by position.
        tensors: parameters that are annotated as a tensor.
        any_number: whether it takes any further positions (``*args``).
        any_keyword: whether it takes any further keywords (``**kwargs``).
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    positional: tuple[str, ...]
    tensors: tuple[str, ...]
    any_number: bool
    any_keyword: bool


def accepts(function: Any) -> Accepts:
    """What a function, or a module's forward, can be called with; anything at all where Python cannot tell.

    Example:
        >>> accepts(nn.CrossEntropyLoss()).required
        ('input', 'target')
    """
    signature = _signature(function)
    if signature is None:
        return Accepts((), (), (), (), True, True)
    parameters = list(signature.parameters.values())
    kinds = {one.kind for one in parameters}
    plain = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return Accepts(
        names=tuple(one.name for one in plain if one.kind is not one.POSITIONAL_ONLY),
        required=tuple(one.name for one in plain if one.default is one.empty),
        positional=tuple(one.name for one in plain if one.kind is not one.KEYWORD_ONLY),
        tensors=tuple(one.name for one in plain if _is_tensor(one.annotation)),
        any_number=inspect.Parameter.VAR_POSITIONAL in kinds,
        any_keyword=inspect.Parameter.VAR_KEYWORD in kinds,
    )


def _signature(function: Any) -> inspect.Signature | None:
    """That of a function, a forward, or what is called of an object that raises when it is asked."""
    called = function.forward if introspection.is_a(function, nn.Module) else function
    for one in (
        called,
        introspection.ask(introspection.ask(type(called), "__call__"), "__get__", lambda _: None)(called),
    ):
        with contextlib.suppress(Exception):
            return inspect.signature(one)
    return None


def _is_tensor(annotation: object) -> bool:
    text = introspection.text(annotation)
    return "Tensor" in text and not re.search(r"dict|mapping|list|tuple|sequence", text, re.IGNORECASE)


def expectation(model: nn.Module) -> str:
    """What a model's forward takes: its signature, and for a model of transformers its main input first.

    Example:
        >>> expectation(nn.Bilinear(2, 3, 4))
        'Bilinear.forward(input1: Tensor, input2: Tensor)'
    """
    inner = model
    if hasattr(type(model), "get_base_model"):  # peft's wrapper hands everything on
        inner = cast(Any, model).get_base_model()
    try:
        parameters = list(inspect.signature(inner.forward).parameters.values())
    except Exception:  # noqa: BLE001
        return f"{type(inner).__name__}.forward(...)"
    main = introspection.ask(inner, "main_input_name")
    if introspection.is_a(main, str):
        parameters = sorted(parameters, key=lambda one: (_rank(one), one.name != main))
        parameters = [one for one in parameters if one.name not in _PLUMBING]
    return f"{type(inner).__name__}.forward({', '.join(_shown(one) for one in parameters)})"


_PLUMBING = ("past_key_values", "cache", "use_cache", "cache_position", "output_attentions", "output_hidden_states",
             "return_dict", "logits_to_keep")  # fmt: skip


def _rank(parameter: inspect.Parameter) -> int:
    return int(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD))


def _shown(parameter: inspect.Parameter) -> str:
    note = parameter.annotation
    plain = parameter if _rank(parameter) else parameter.replace(annotation=parameter.empty)
    if note is parameter.empty or _rank(parameter):
        return str(plain.replace(annotation=parameter.empty))
    text = note if isinstance(note, str) else inspect.formatannotation(note)
    text = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", text)
    name, _, default = str(plain).partition("=")
    return f"{name}: {text} = {default}" if default else f"{name}: {text}"
