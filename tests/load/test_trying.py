"""A proposed batch is run, and corrected until the forward pass and the loss take it; the model is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradkit.load import synthetic, trying
from gradkit.load.batches import load_batch
from gradkit.load.step import from_objects


class Classifier(nn.Module):
    """Pictures of 28 × 28, flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4 * 26 * 26, 10)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.conv(x).flatten(1))


class HeadFirst(nn.Module):
    """Its layers are registered in another order than they run."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(16, 3), nn.Linear(7, 16)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.body(x))


class Positions(nn.Module):
    """Words with positions, of which there are fewer than words in a proposal."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(50, 12), nn.Embedding(6, 12), nn.Linear(12, 50)

    def forward(self, ids: torch.Tensor) -> Any:
        return self.head(self.words(ids) + self.places(torch.arange(ids.shape[1])))


class Unpacks(nn.Module):
    """Its forward asks for four sizes; its first layer is linear."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> Any:
        _, _, _, _ = x.shape
        return self.head(x.mean((2, 3)))


class Patches(nn.Module):
    """A small ViT with learned positions for one size of picture."""

    def __init__(self) -> None:
        super().__init__()
        self.image_size = 48
        self.patch = nn.Conv2d(3, 8, 8, 8)
        self.position = nn.Parameter(torch.zeros(1, 36, 8))
        self.head = nn.Linear(8, 7)

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.head((self.patch(pixels).flatten(2).mT + self.position).mean(1))


class HalfPrecision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 4, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x)


class Normed(nn.Module):
    """Counts its runs in a buffer, as BatchNorm does, and draws."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(F.dropout(self.norm(self.body(x)))).squeeze(-1)


def by_key(output: torch.Tensor, batch: Any) -> torch.Tensor:
    return F.cross_entropy(output, batch["labels"])


def by_place(output: torch.Tensor, batch: Any) -> torch.Tensor:
    _, y = batch
    return F.mse_loss(output, y)


def of_words(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


CASES: dict[str, tuple[Callable[[], nn.Module], Any, str]] = {
    "flattened": (Classifier, nn.CrossEntropyLoss(), "float32[4, 1, 28, 28]; int64[4]<10"),
    "head first": (HeadFirst, nn.CrossEntropyLoss(), "float32[4, 7]; int64[4]<3"),
    "positions": (Positions, of_words, "int64[4, 4]<50; int64[4, 4]<50"),
    "unpacked": (Unpacks, nn.CrossEntropyLoss(), "float32[4, 3, 32, 32]; int64[4]<5"),
    "patches": (Patches, nn.CrossEntropyLoss(), "float32[4, 3, 48, 48]; int64[4]<7"),
    "bfloat16": (HalfPrecision, nn.MSELoss(), "bfloat16[4, 6]; bfloat16[4, 4]"),
    "numbers": (Normed, nn.MSELoss(), "float32[4, 6]; float32[4]"),
    "by key": (HeadFirst, by_key, "x=float32[4, 7]; labels=int64[4]<3"),
    "by place": (HeadFirst, by_place, "float32[4, 7]; float32[4, 3]"),
    "no loss": (HeadFirst, None, "float32[4, 7]"),
    "no labels wanted": (HeadFirst, lambda output: output.square().mean(), "float32[4, 7]"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_proposal_is_corrected_until_it_passes(name: str) -> None:
    make, loss, line = CASES[name]
    model = make()
    found = trying.corrected(model, synthetic.propose(model), loss)
    assert (found.line, found.error) == (line, "")
    if loss is not None:
        value = from_objects(model, load_batch(found.line), loss).run()
        assert isinstance(value, torch.Tensor)
        value.backward()  # type: ignore[no-untyped-call]


def test_trying_leaves_no_trace() -> None:
    model = Normed()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seed = torch.get_rng_state()
    trying.corrected(model, "float32[4, 9]", nn.MSELoss())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), seed)
    assert all(one.grad is None for one in model.parameters())
    assert model.training


class Refuses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.runs = nn.Linear(4, 4), [0]

    def forward(self, x: torch.Tensor) -> Any:
        raise ValueError("only ragged lists here")


def test_where_nothing_passes_the_first_proposal_stands_with_what_was_said() -> None:
    found = trying.corrected(Refuses(), "float32[4, 4]")
    assert found == trying.Tried("float32[4, 4]", "ValueError: only ragged lists here")


def test_a_loss_that_takes_nothing_leaves_the_inputs_that_pass() -> None:
    def never(output: torch.Tensor, batch: Any) -> torch.Tensor:
        raise KeyError("weights of the classes")

    found = trying.corrected(HeadFirst(), "float32[4, 16]", never)
    assert found.line == "float32[4, 7]"
    assert "weights of the classes" in found.error
