"""What is heard of tensors: made, copied, frozen and thawed, written, loaded, cast.

Methods on objects are heard, as ``p.zero_()`` and ``p.requires_grad = False`` are, and whatever ends in them:
``nn.init``, ``Module.requires_grad_``, ``load_state_dict``, ``.half()``. ``Tensor.zero_(p)`` and what C++ does by
itself are not. A function mode would hear those too, but while it is on torch takes no fast paths (results differ in
the last digits) and compilers trace it; it holds in one thread only, and can be left in the reverse order alone.
Source: https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from gradkit.source.faults import on_behalf
from gradkit.witness import deeds, histories
from gradkit.witness.deeds import CAST, COPIED, CREATED, FROZEN, LOADED, THAWED, WRITTEN
from gradkit.witness.replaced import HeardMethod, HeardProperty

_BASE: Any = torch._C.TensorBase  # where torch keeps what is written in C
_quietly: Any = torch._C.DisableTorchFunction  # what is asked here, no mode or subclass of the user's hears
_WRITES = ("zero_", "fill_", "copy_", "normal_", "uniform_")
_MODULE = torch_module.__file__
_REMADE = frozenset(("_apply", "_rebuild_parameter", "_rebuild_parameter_with_state"))
_SPLITS = frozenset(("_init_sharded_param", "_partition_linear_fn", "_partition_embedding_fn"))
_LOADS = frozenset(("_load_from_state_dict",))
_FILLS = frozenset(("reset_parameters", "_reset_parameters"))
_TORCHS = deeds.TORCHS
_DEEP = 8

Hears = Callable[[], bool]


def _flag(tensor: Any) -> bool:
    with _quietly():
        return bool(tensor.requires_grad)


def is_made_frozen(tensor: Any, frame: FrameType | None) -> bool:
    """Whether a layer of torch's is making this parameter, without ``requires_grad``, for what calls ``frame``."""
    if histories.is_known(tensor) or _flag(tensor):
        return False
    while frame is not None and frame.f_code.co_filename == _MODULE:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "__init__" and deeds.is_torchs(frame)


def heard(hears: Hears) -> list[tuple[Any, str, Any]]:
    """What is to be replaced: class, attribute, and what stands for it.

    Args:
        hears: whether somebody listens, in this thread.
    """
    maker: Any = type(nn.Parameter)
    return [
        (torch.Tensor, "requires_grad", HeardProperty(_BASE.requires_grad, _flag_setter(hears))),
        (torch.Tensor, "data", HeardProperty(_BASE.data, _data_setter(hears))),
        (torch.Tensor, "requires_grad_", HeardMethod(_BASE.requires_grad_, _flag_method(hears))),
        *((torch.Tensor, name, HeardMethod(getattr(_BASE, name), _write(hears, name))) for name in _WRITES),
        (nn.Parameter, "__deepcopy__", HeardMethod(vars(nn.Parameter)["__deepcopy__"], _copy(hears))),
        (maker, "__call__", _make(hears, maker.__call__)),
    ]


def heard_late(hears: Hears) -> list[tuple[Any, str, Any]]:
    """The same of what is rare in a program that trains. It stands on ``nn.Parameter``: activations never meet it.

    Args:
        hears: whether somebody listens late.
    """
    return [
        (nn.Parameter, "requires_grad", HeardProperty(_BASE.requires_grad, _flag_setter(hears))),
        (nn.Parameter, "requires_grad_", HeardMethod(_BASE.requires_grad_, _flag_method(hears))),
        (nn.Parameter, "__deepcopy__", HeardMethod(vars(nn.Parameter)["__deepcopy__"], _copy(hears))),
    ]


# -- frozen and thawed ------------------------------------------------------------------------------------------------


def _flag_setter(hears: Hears) -> Callable[[Any, Any], None]:
    original = _BASE.requires_grad.__set__

    @on_behalf
    def set_flag(tensor: Any, value: Any) -> None:
        before = hears() and _flag(tensor)
        original(tensor, value)
        if hears():
            _tell_flag(tensor, before, sys._getframe(1))

    return set_flag


def _flag_method(hears: Hears) -> Callable[..., Any]:
    original = _BASE.requires_grad_

    @on_behalf
    def requires_grad_(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        before = hears() and _flag(tensor)
        result = original(tensor, *args, **kwargs)
        if hears():
            _tell_flag(tensor, before, sys._getframe(1))
        return result

    return requires_grad_


def _tell_flag(tensor: Any, before: bool, frame: FrameType) -> None:
    """A flag that was set to what it was is told too: to undo the first such line alone would not do."""
    try:
        now = _flag(tensor)
        facts = {} if now != before else {"again": "yes"}
        histories.remember(tensor, deeds.noted(THAWED if now else FROZEN, frame, facts))
    except Exception:  # noqa: BLE001  what only listens never stops the program
        return


# -- written ----------------------------------------------------------------------------------------------------------


def _write(hears: Hears, name: str) -> Callable[..., Any]:
    original = getattr(_BASE, name)

    @on_behalf
    def write(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, *args, **kwargs)
        if hears():
            _tell_write(tensor, name, args, kwargs, sys._getframe(1))
        return result

    return write


def _tell_write(tensor: Any, name: str, args: Any, kwargs: Any, frame: FrameType) -> None:
    try:
        if _is_being_made(frame):
            return
        with _quietly():
            written = tensor if _counts(tensor) else _shares_with(tensor)
            if written is None:
                return
            facts = {"by": name, "version": _version_of(written)}
            facts |= {"zero": "yes"} if _zeroes(name, args, kwargs) else {}
            facts |= {"part": "yes"} if tensor.numel() != written.numel() else {}
        kind = LOADED if frame.f_code.co_name in _LOADS else WRITTEN
        histories.remember(written, deeds.noted(kind, frame, facts))
    except Exception:  # noqa: BLE001  as above
        return


def _is_being_made(frame: FrameType | None) -> bool:
    """Whether a layer of torch's fills its parameters as it is made: all of a kind do, so that tells nothing."""
    for _ in range(_DEEP):
        if frame is None or not ((code := frame.f_code).co_filename in _TORCHS or deeds.is_torchs(frame)):
            return False
        frame = frame.f_back
        if code.co_name in _FILLS:
            return frame is not None and frame.f_code.co_name == "__init__" and deeds.is_torchs(frame)
    return False


def _zeroes(name: str, args: Any, kwargs: Any) -> bool:
    value = kwargs.get("value", args[0] if args else None)
    return name == "zero_" or (name == "fill_" and type(value) in (int, float) and value == 0)


def _version_of(tensor: Any) -> str:
    """How often a tensor has been written in place, as far as torch counts it: through ``.data`` it does not."""
    with _quietly():
        return str(tensor._version)  # noqa: SLF001  there is no other name for it


def _counts(tensor: Any) -> bool:
    return type(tensor) is nn.Parameter or histories.is_known(tensor)


def place(tensor: Any) -> None:
    """Let what is written through ``tensor.data`` or a view count as written to this tensor, which has a history."""
    histories.is_placed_later(tensor)


def _shares_with(tensor: Any) -> Any:
    """The known tensor whose memory this one shares, None if there is none."""
    for one in histories.unplaced():
        _place_now(one)
    memory = tensor.untyped_storage()._cdata
    found: Any = histories.found_in(memory)
    return found if found is not None and found.untyped_storage()._cdata == memory else None


def _place_now(tensor: Any) -> None:
    try:
        histories.lies_in(tensor, tensor.untyped_storage()._cdata)
    except Exception:  # noqa: BLE001  one that has no memory of its own
        return


def _data_setter(hears: Hears) -> Callable[[Any, Any], None]:
    original = _BASE.data.__set__

    @on_behalf
    def set_data(tensor: Any, value: Any) -> None:
        before = _kept_as(tensor) if hears() else None
        original(tensor, value)
        if before is not None and hears():
            _tell_data(tensor, before, sys._getframe(1))

    return set_data


def _kept_as(tensor: Any) -> tuple[Any, Any]:
    with _quietly():
        return tensor.dtype, tensor.device


def _tell_data(tensor: Any, before: tuple[Any, Any], frame: FrameType) -> None:
    try:
        if not _counts(tensor):
            return
        place(tensor)
        now, code = _kept_as(tensor), frame.f_code
        if code.co_name != "_apply" or code.co_filename != _MODULE:
            facts = {"by": "data", "version": _version_of(tensor)}
            histories.remember(tensor, deeds.noted(WRITTEN, frame, facts))
        elif now != before:
            facts = {"from": _name_of(before[0]), "to": _name_of(now[0]), "device": str(now[1])}
            histories.remember(tensor, deeds.noted(CAST, frame, facts))
    except Exception:  # noqa: BLE001  as above
        return


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


# -- made and copied --------------------------------------------------------------------------------------------------


def _make(hears: Hears, original: Any) -> Callable[..., Any]:
    """Parameters of torch's own layers are left to their registration, which follows at once."""

    @on_behalf
    def make(cls: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(cls, *args, **kwargs)
        if hears():
            code = (frame := sys._getframe(1)).f_code
            if code.co_name in _SPLITS:
                _tell_split(made, frame)
            elif code.co_filename not in _TORCHS or code.co_name in _REMADE:
                _tell_made(made, frame)
        return made

    return make


def _tell_made(made: Any, frame: FrameType) -> None:
    try:
        if frame.f_code.co_name not in _REMADE and deeds.is_torchs(frame):
            return
        facts = {} if _flag(made) else {"frozen": "yes"}
        histories.remember(made, deeds.noted(CREATED, frame, facts))
        place(made)
    except Exception:  # noqa: BLE001  as above
        return


def _tell_split(made: Any, frame: FrameType) -> None:
    """The part of a parameter that stays on this rank takes its place, and its history."""
    try:
        whole = frame.f_locals.get("param")
        if deeds.is_torchs(frame) and isinstance(whole, nn.Parameter) and _flag(whole) == _flag(made):
            histories.take_over(made, whole)
    except Exception:  # noqa: BLE001  as above
        return


def _copy(hears: Hears) -> Callable[..., Any]:
    original = vars(nn.Parameter)["__deepcopy__"]

    @on_behalf
    def deepcopy(tensor: Any, memo: Any) -> Any:
        known = id(tensor) in memo
        made = original(tensor, memo)
        if hears() and not known:
            _tell_copy(tensor, made, sys._getframe(1))
        return made

    return deepcopy


def _tell_copy(tensor: Any, made: Any, frame: FrameType) -> None:
    try:
        histories.remember(made, deeds.noted(COPIED, frame, {}, histories.deeds_of(tensor)))
        place(made)
    except Exception:  # noqa: BLE001  as above
        return


def forget_replaced() -> None:
    """Where torch's compiler was imported meanwhile, its table of what tensors have gets the originals."""
    table: Any = getattr(sys.modules.get("torch._dynamo.variables.tensor"), "all_tensor_attrs", {})
    for name, there in list(table.items()):
        if type(there) in (HeardMethod, HeardProperty):
            table[name] = vars(_BASE)[name]
