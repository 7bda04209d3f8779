"""Whether the stages of a pipeline on this rank hand back a gradient for what the stages before them have computed.

Where a stage cuts its input off, ``torch.distributed.pipelining`` sends zeros back in place of the gradient: nothing
raises, and what comes before learns nothing. The stage itself can be asked after each backward, without a look at any
number. An input that no stage before it trains for does not require grad.
Source: https://docs.pytorch.org/docs/stable/distributed.pipelining.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from gradkit.core import introspection
from gradkit.witness.late_module import HeardLater

LASTING = 3
"""Steps in a row, after which it is told."""
_STAGES = "torch.distributed.pipelining.stage", "_PipelineStageBase", "backward_one_chunk"
_KNOWS = "_get_grad_send_meta"  # a torch whose stages know which inputs require grad


class PipelineStages:
    """Those of this rank.

    Example:
        >>> stages = PipelineStages()
        >>> stages.open()  # pipelining is not in use
        >>> stages.stepped() is None
        True
        >>> stages.close()
    """

    def __init__(self) -> None:
        self._now: dict[int, bool] = {}
        self._lost: dict[int, int] = {}
        self._heard = HeardLater(_STAGES, self._hearing, _KNOWS)

    def open(self) -> None:
        """Listen where stages go backward; may be called again until the program uses pipelining."""
        self._heard.open()

    def close(self) -> None:
        """Listen no longer."""
        self._heard.close()

    def stepped(self) -> int | None:
        """An optimizer is about to step.

        Returns:
            The number of a stage that has handed back nothing in the last ``LASTING`` steps, in none of their chunks;
            once, and None as a rule.
        """
        told = None
        for stage, came in self._now.items():
            self._lost[stage] = 0 if came else self._lost.get(stage, 0) + 1
            told = stage if self._lost[stage] == LASTING else told
        self._now.clear()
        return told

    def _hearing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward_one_chunk(stage: Any, chunk: int, *args: Any, **kwargs: Any) -> Any:
            given = stage.fwd_cache.get(chunk)
            made = original(stage, chunk, *args, **kwargs)
            with contextlib.suppress(Exception):
                self.heard(stage, given[1], stage.bwd_cache.get(chunk, ()))
            return made

        return backward_one_chunk

    def heard(self, stage: Any, inputs: Any, gradients: Any) -> None:
        """A stage has gone backward.

        Args:
            stage: which.
            inputs: what it was given by the stage before it.
            gradients: what it hands back for each of them; None for nothing.
        """
        asked = [one for x, one in zip(inputs, gradients, strict=False) if introspection.ask(x, "requires_grad")]
        if asked and not stage.is_first:
            came = any(one is not None for one in asked)
            self._now[stage.stage_index] = came or self._now.get(stage.stage_index, False)
