"""A Trainer of transformers' is diagnosed as it is, and is afterwards as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.errors import GradkitError

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((3,), float(at)), "labels": torch.tensor(at % 2)}


class Net(nn.Module):
    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.body, self.head, self.cut = nn.Linear(3, 4), nn.Linear(4, 2), cut

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        hidden = self.body(x)
        if self.cut:
            hidden = hidden.detach()  # CUT
        logits = self.head(hidden)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else logits.sum()
        return {"loss": loss, "logits": logits}


def trainer(folder: Path, kind: Any = None, rows: Any = None, *, cut: bool = False, steps: int = 2) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), per_device_train_batch_size=2, max_steps=steps, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, gradient_accumulation_steps=2,
    )  # fmt: skip
    return (kind or transformers.Trainer)(
        model=Net(cut), args=arguments, train_dataset=Rows() if rows is None else rows
    )


def test_a_trainers_own_forward_pass_is_diagnosed(tmp_path: Path) -> None:
    report = gradkit.diagnose(trainer(tmp_path, cut=True))
    (finding,) = report.findings
    assert finding.cause == "detach"
    assert finding.parameters == ("body.weight", "body.bias")
    assert report.label == "Trainer"


def test_a_compute_loss_of_ones_own_is_used_and_may_take_the_labels_out(tmp_path: Path) -> None:
    class Own(transformers.Trainer):  # type: ignore[misc, name-defined]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
            labels = inputs.pop("labels")
            score = model(**inputs)["logits"].argmax(-1)
            return (score == labels).float().mean()

    report = gradkit.diagnose(trainer(tmp_path, Own))
    assert report.label == Own.__qualname__.rpartition(".")[2]
    assert report.findings[0].cause == "non_differentiable_op"
    assert report.findings[0].location is not None
    assert report.findings[0].location.file == __file__


def test_a_sound_trainer_gets_a_clean_bill_and_is_as_it_was(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    written = sorted(tmp_path.rglob("*"))
    before = dict(vars(one)), {k: v.clone() for k, v in one.model.state_dict().items()}, torch.get_rng_state()
    loaders = len(one.accelerator._dataloaders)
    assert gradkit.diagnose(one).healthy
    assert vars(one).keys() == before[0].keys()
    assert all(vars(one)[name] is value for name, value in before[0].items())
    assert all(torch.equal(one.model.state_dict()[name], value) for name, value in before[1].items())
    assert torch.equal(torch.get_rng_state(), before[2])
    assert len(one.accelerator._dataloaders) == loaders
    assert sorted(tmp_path.rglob("*")) == written
    one.train()


def test_a_trainer_without_data_is_told_what_it_lacks(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    one.train_dataset = None
    with pytest.raises(GradkitError) as caught:
        gradkit.diagnose(one)
    assert caught.value.key == "trainer_without_data"
