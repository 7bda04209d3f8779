"""Programs that lose the gradient by `numpy_roundtrip`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.programs.shared import Built, batch, cut, pair, small

# -- out of torch and back --------------------------------------------------------------------------------------------


@cut("numpy_roundtrip")
def arrays_through_many_functions() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        array = model["inner"](x).detach().numpy()  # CUT
        array = np.exp(array) / np.exp(array).sum(-1, keepdims=True)
        array = np.stack(list(np.concatenate([array, array])[:6]))
        return model["outer"](torch.from_numpy(np.ascontiguousarray(array.astype(np.float32)))).sum()

    return model, step


@cut("numpy_roundtrip")
def a_round_trip_written_over_several_lines() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.tensor(
            model["inner"](
                x,
            )
            .detach()
            .numpy()  # CUT
        )
        return model["outer"](code).sum()

    return model, step


@cut("numpy_roundtrip")
def a_chain_of_calls_that_leaves_torch_a_line_each() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        # fmt: off
        array = (
            model["inner"](x)
            .detach()
            .cpu()
            .numpy()  # CUT
        )
        # fmt: on
        return model["outer"](torch.from_numpy(array)).sum()

    return model, step


@cut("numpy_roundtrip")
def a_singular_value_decomposition_by_numpy() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        left, values, right = np.linalg.svd(model["inner"](x).data.numpy(), full_matrices=False)  # CUT
        return model["outer"](torch.tensor(left @ np.diag(values) @ right)).sum()  # CUT

    return model, step


@cut("numpy_roundtrip")
def an_array_made_of_a_list_of_arrays() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        rows = []
        for row in x:
            rows.append(model["inner"](row).detach().numpy())  # noqa: PERF401  # CUT
        return model["outer"](torch.tensor(np.array(rows))).sum()  # CUT

    return model, step


@cut("numpy_roundtrip")
def an_array_filled_row_by_row() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        array = np.zeros((6, 4), dtype=np.float32)
        for i in range(6):
            array[i] = model["inner"](x[i]).detach().numpy()  # CUT
        return model["outer"](torch.from_numpy(array)).sum()

    return model, step


@cut("numpy_roundtrip")
def an_array_by_asarray() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        array = np.asarray(model["inner"](x).detach().cpu())  # CUT
        return model["outer"](torch.as_tensor(array * 2)).sum()

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


@cut("numpy_roundtrip")
def a_spectrum_by_numpy() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        spectrum = np.fft.rfft(model["inner"](x).detach().numpy())  # CUT
        return model["outer"](torch.from_numpy(np.abs(spectrum).astype(np.float32)).repeat(1, 2)[:, :4]).sum()

    return model, step


# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("numpy_roundtrip")
def an_array_asked_of_a_tensor_that_requires_grad() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x).numpy()  # CUT
        return model["outer"](torch.from_numpy(code)).sum()

    return model, step


# -- found by injection -----------------------------------------------------------------------------------------------


@cut("numpy_roundtrip")
def an_array_that_asarray_makes_plain_again() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        halved = np.asarray(code.detach().numpy()) * 0.5  # CUT
        return model["outer"](torch.from_numpy(halved)).sum()

    return model, step


@cut("numpy_roundtrip")
def arrays_that_array_copies() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        rows = [np.ascontiguousarray(np.array(row.detach().numpy()) + 1.0) for row in model["inner"](x)]  # CUT
        return model["outer"](torch.stack([torch.from_numpy(row) for row in rows])).sum()

    return model, step


@cut("numpy_roundtrip")
def a_way_through_numpy_beside_a_target_that_is_detached_on_purpose() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        weight = code.detach().sigmoid().mean(dim=1, keepdim=True)
        kept = torch.from_numpy(code.detach().cpu().numpy())  # CUT
        return (weight * model["outer"](x)).mean() + kept.pow(2).mean()

    return model, step


# -- an array in the place of the loss --------------------------------------------------------------------------------


@cut("numpy_roundtrip")
def a_mean_that_numpy_takes_and_that_is_returned() -> Built:
    model, x = small(), batch()

    def step() -> Any:
        errors = (model(x) - 1).pow(2)
        return np.mean(errors.detach().numpy())  # CUT

    return model, step


@cut("numpy_roundtrip")
def a_backward_that_is_asked_of_an_array() -> Built:
    model, x = small(), batch()

    def step() -> None:
        out = model(x).detach().numpy()  # CUT
        loss: Any = np.square(out - 1).mean(axis=0)
        loss.backward()

    return model, step


@cut("numpy_roundtrip")
def an_array_of_no_dimensions_returned() -> Built:
    model, x = small(), batch()
    return model, lambda: model(x).pow(2).mean().detach().cpu().numpy()  # CUT


@cut("numpy_roundtrip")
def a_loss_that_comes_back_from_numpy_as_the_last_thing() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        return torch.from_numpy(model(x).pow(2).mean().detach().numpy().copy())  # CUT

    return model, step


# -- a gradient that is asked for across it ---------------------------------------------------------------------------


def _asked(model: torch.nn.Module, across: Callable[[torch.Tensor], torch.Tensor]) -> Built:
    x = batch()

    def step() -> torch.Tensor:
        noise = torch.zeros(6, 4).requires_grad_()
        loss = model(across(x + noise)).sum()
        (slope,) = torch.autograd.grad(loss, noise, retain_graph=True)
        return loss + model(x + slope).sum()

    return model, step


@cut("numpy_roundtrip")
def a_gradient_asked_for_through_rounded_pixels() -> Built:
    def across(h: torch.Tensor) -> torch.Tensor:
        rows = h.detach().numpy()  # CUT
        pixels = [(255 * row).round().astype(np.uint8) for row in rows]
        return torch.from_numpy(np.stack(pixels)).float() / 255

    return _asked(small(), across)


@cut("numpy_roundtrip")
def a_gradient_asked_for_through_whole_numbers_that_are_computed_with() -> Built:
    def across(h: torch.Tensor) -> torch.Tensor:
        levels = h.detach().numpy().round().astype(np.int64)  # CUT
        return torch.from_numpy(np.concatenate([levels * 2 + 1])).float()

    return _asked(small(), across)
