"""Programs that lose the gradient by `inference_mode`."""

from __future__ import annotations

import contextlib
import threading

import torch

from tests.programs.shared import Built, batch, cut, pair

# -- grad mode --------------------------------------------------------------------------------------------------------


@cut("inference_mode")
def inference_mode_as_second_context_manager() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        with contextlib.nullcontext(), torch.inference_mode():  # CUT
            code = model["inner"](x)
        return model["outer"](code.clone()).sum()

    return model, step


# -- detach and .data -------------------------------------------------------------------------------------------------


@cut("inference_mode")
def inference_mode_inside_a_thread() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []

        def work() -> None:
            with torch.inference_mode():  # CUT
                made.append(model["inner"](x))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return model["outer"](torch.stack(made).sum(0).clone()).sum()

    return model, step


# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("inference_mode")
def a_tensor_kept_from_inference_mode() -> Built:
    model, x = pair(), batch()

    def warm_up() -> torch.Tensor:
        with torch.inference_mode():  # CUT
            return torch.ones(4) * 2

    scale = warm_up()
    return model, lambda: model["outer"](model["inner"](x) * scale).sum()
