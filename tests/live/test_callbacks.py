"""A trainer's callback opens a watch when training begins, and closes it when that ends."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gradkit
from gradkit.core.errors import GradkitError
from tests.load.test_trainers import trainer


def test_an_unknown_library_is_told_with_those_that_are_known() -> None:
    with pytest.raises(GradkitError, match="transformers, lightning"):
        gradkit.callback("keras")


def test_a_trainers_silent_fault_is_told_by_its_callback(tmp_path: Path) -> None:
    one: Any = trainer(tmp_path, cut=True, steps=4)
    callback = gradkit.callback("transformers")
    told: list[Any] = []
    callback.watch.tell = told.append
    one.add_callback(callback)
    one.train()
    (report,) = callback.watch.reports
    assert (report.findings[0].cause, report.findings[0].location.text.strip()) == (
        "detach",
        "hidden = hidden.detach()  # CUT",
    )
    assert len(told) == 1
    assert repr(callback.watch).startswith("<gradkit.Watch: closed, steps: 4")


def test_a_callback_survives_copies_and_pickles() -> None:
    callback = gradkit.callback("transformers")
    assert copy.deepcopy(callback) is callback
    assert type(pickle.loads(pickle.dumps(callback))) is type(callback)


def test_lightning_has_its_own() -> None:
    pytest.importorskip("lightning")
    callback = gradkit.callback("lightning")
    assert {"on_fit_start", "on_fit_end", "on_exception"} <= set(vars(type(callback)))


@pytest.mark.parametrize("cut", [True, False])
def test_a_fit_of_lightnings_is_watched_and_comes_to_the_same_weights(cut: bool) -> None:
    lightning: Any = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            hidden = self.body(batch[0])
            hidden = hidden.detach() if cut else hidden
            return nn.functional.cross_entropy(self.head(hidden), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    def fitted(*callbacks: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = Module()
        data = DataLoader(TensorDataset(torch.randn(16, 4), torch.arange(16) % 3), batch_size=4)
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        lightning.Trainer(accelerator="cpu", max_epochs=1, callbacks=list(callbacks), **quiet).fit(module, data)
        return [one.detach() for one in module.parameters()]

    callback = gradkit.callback("lightning")
    callback.watch.tell = lambda _: None
    assert all(map(torch.equal, fitted(callback), fitted()))
    assert [f.cause for report in callback.watch.reports for f in report.findings] == ["detach"] * cut


def test_a_trainers_own_optimizer_is_told_as_such(tmp_path: Path) -> None:
    callback = gradkit.callback("transformers")
    callback.watch.tell = lambda _: None
    with gradkit.watch(tell=lambda _: None):
        one: Any = trainer(tmp_path, cut=False, steps=4)
        one.create_optimizer()
        one.model.head = nn.Linear(one.model.head.in_features, one.model.head.out_features)
        one.add_callback(callback)
        one.train()
    (finding,) = callback.watch.reports[0].findings
    assert (finding.cause, finding.variant) == ("optimizer_mismatch", "trainer")
    assert "trainer.optimizer = None" in callback.watch.reports[0].text("en")
    assert "Trainer 自己创建" in callback.watch.reports[0].text("zh")
