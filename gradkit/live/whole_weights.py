"""A step of a model that ``fully_shard`` has split, run again on one rank: from the whole weights of that very step.

A pass gathers the weights by collectives, which one rank can't make alone. So in the steps that are looked at, what
forward has gathered is copied as it is there, up to a limit, and kept until the next such step; and for a rerun the
model stands whole for a while: these weights in place of the shards, also in the optimizer, and of ``fully_shard``'s
hooks only what they cast.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import introspection, patches
from gradkit.live import rank_parts
from gradkit.live.surroundings import locals_of
from gradkit.state import registered
from gradkit.witness import listening
from gradkit.witness.late_module import HeardLater

MOST = 1 << 28
"""Bytes that the copies of one step may take on a rank, in the memory of the CPU; of a larger model none is made."""
_SPLITS = "torch.distributed.fsdp"
_PARAMETERS = f"{_SPLITS}._fully_shard._fsdp_param", "FSDPParam", "to_unsharded"
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


class WholeWeights:
    """Those that the passes of this step have gathered.

    Attributes:
        steps: how many steps optimizers have begun.
        due: the same, where the next is going to be looked at; else None.
        is_older: models stand whole now, by the weights of an earlier step.

    Example:
        >>> WholeWeights().open().close()  # fully_shard is not in use
    """

    def __init__(self) -> None:
        self.steps: Callable[[], int] = lambda: 0
        self.due: Callable[[], int | None] = lambda: None
        self.is_older = False
        self._step: int | None = None
        self._size = 0
        self._kept: dict[int, tuple[torch.Tensor, torch.device]] = {}
        self._heard = HeardLater(_PARAMETERS, self._hearing)

    def open(self) -> WholeWeights:
        """Listen where parameters are gathered; may be called again until the program uses ``fully_shard``."""
        self._heard.open()
        return self

    def close(self) -> None:
        """Listen no longer, and keep nothing."""
        self._heard.close()
        self._step = None
        self._kept, self._size = {}, 0

    def _hearing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def to_unsharded(one: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(one, *args, **kwargs)
            with contextlib.suppress(Exception):
                self._keep(one)
            return made

        return to_unsharded

    def _keep(self, one: Any) -> None:
        if (due := self.due()) is None:
            return
        if due != self._step:  # the weights of another step are others
            self._step, self._kept, self._size = due, {}, 0
        if id(one) in self._kept:
            return
        whole = one._unsharded_param  # noqa: SLF001  torch keeps it under no other name
        self._size += whole.numel() * whole.element_size()
        if self._size <= MOST and type(whole) is nn.Parameter:
            self._kept[id(one)] = whole.detach().to("cpu", copy=True), whole.device

    @contextlib.contextmanager
    def of_frames(self, seen: Sequence[FrameType]) -> Iterator[tuple[Optimizer | None, dict[int, torch.Tensor]]]:
        """While the block lasts, the models in some frames are whole, by the weights of the last step looked at.

        Whether a history is there does not depend on the numbers.

        Args:
            seen: the frames of an error, say.

        Yields:
            Their optimizer, and the whole weights by the ids of the shards, as ``in_place``.
        """
        held = [one for frame in seen for one in locals_of(frame).values()] if self._kept else []
        models = registered.outermost({id(one): one for one in held if introspection.is_a(one, nn.Module)}.values())
        optimizer = next((one for one in reversed(held) if introspection.is_a(one, Optimizer)), None)
        if optimizer is None or not rank_parts.sharded_of(models):
            yield None, {}
            return
        with self.in_place(models, optimizer, of_this_step=False) as whole:
            self.is_older = bool(whole)
            try:
                yield optimizer, whole
            finally:
                self.is_older = False

    @contextlib.contextmanager
    def in_place(
        self, models: Sequence[nn.Module], optimizer: Optimizer, *, of_this_step: bool = True
    ) -> Iterator[dict[int, torch.Tensor]]:
        """While the block lasts, models are as if nothing had split them.

        Args:
            models: that are split, or not.
            optimizer: that holds their shards.
            of_this_step: only by the weights that this very step has gathered.

        Yields:
            The whole weights by the ids of the shards; ``{}`` where nothing is split, or not all weights are known, so
            that nothing was changed.
        """
        parts = [part for model in models for part in rank_parts.split_parts(model)]
        split = [one for part in parts for one in rank_parts.split_parameters(part)]
        whole = {id(one.sharded_param): self._whole(one) for one in split if id(one) in self._kept}
        is_in_time = self._step is not None and (not of_this_step or self._step + 1 == self.steps())
        is_known = is_in_time and all(cast for part in parts for cast in _casts(part))
        if not is_known or not split or len(whole) < len({id(one.sharded_param) for one in split}):
            yield {}
            return
        with listening.paused(), patches.undone():
            for part in parts:
                _only_cast(part)
            for one in split:
                for table, name in _places(one):
                    _put(table, name, whole[id(one.sharded_param)])
            for group in optimizer.param_groups:
                held = [whole.get(id(parameter), parameter) for parameter in group["params"]]
                _put(group, "params", held)
            yield dict(whole)

    def _whole(self, one: Any) -> nn.Parameter:
        copied, device = self._kept[id(one)]
        return nn.Parameter(copied.to(device, copy=True), requires_grad=one.sharded_param.requires_grad)


def _only_cast(part: nn.Module) -> None:
    """A module of the class that it had; of the hooks that gather and split, what they cast is left."""
    kinds = type(part).__mro__
    own = next(one for one in kinds if not issubclass(one, sys.modules[_SPLITS].FSDPModule))
    inputs, output = _casts(part)
    ours = (lambda _, args, kwargs: inputs(args, kwargs)), (lambda _, __, made: output(made))
    for name, cast in zip(_HOOKS, ours, strict=True):
        hooks = ((number, cast if _is_of_shards(hook) else hook) for number, hook in vars(part)[name].items())
        _put(vars(part), name, OrderedDict(hooks))
    patches.later(partial(setattr, part, "__class__", kinds[0]))
    part.__class__ = own


def _casts(part: nn.Module) -> tuple[Any, Any]:
    """What casts the inputs and the output of a module; None where torch does that otherwise."""
    state = part._get_fsdp_state()  # type: ignore[operator]  # noqa: SLF001  as above
    return getattr(state, "_cast_forward_inputs", None), getattr(state, "_cast_output_dtype", None)


def _is_of_shards(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(_SPLITS)


def _places(one: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """The tables of modules that hold a parameter, and its names there."""
    at = one._module_info  # noqa: SLF001  as above
    owners, names = [at.module, *at.shared_modules], [at.param_name, *at.shared_param_names]
    yield from ((module._parameters, name) for module, name in zip(owners, names, strict=True))


def _put(table: dict[str, Any], name: str, new: Any) -> None:
    patches.later(partial(table.__setitem__, name, table[name]))
    table[name] = new


kept = WholeWeights()
"""Those of this process, which is one of several ranks; nothing is kept where it trains alone."""
