"""Programs on two processes that a library trains, or that add up gradients: one report names rank, line and batch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.programs.ranks import LOOP, line, run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="torchrun with gloo")
NO_IMAGE = 'late and scene.pop("image")'

DATA = """\
import os
from datetime import timedelta
import torch
from torch import nn
from torch.nn.functional import cross_entropy

class Scenes(torch.utils.data.Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, number):
        row = {{"sound": torch.ones(5) * number, "kind": torch.tensor(number % 3)}}
        if {has_image}:
            row["image"] = torch.ones(6)
        return row
"""

TRAINER = (
    DATA
    + """
from transformers import Trainer, TrainingArguments

class Describer(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.ear, self.tell = nn.Linear(6, 8), nn.Linear(5, 8), nn.Linear(8, 3)
    def forward(self, sound, kind, image=None):
        seen = self.ear(sound)
        if image is not None:
            seen = seen + self.eye(image)
        return {{"loss": cross_entropy(self.tell(seen), kind)}}

class InOrder(Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)

arguments = TrainingArguments(
    "out", use_cpu=True, per_device_train_batch_size=2, max_steps=6, report_to=[], save_strategy="no",
    disable_tqdm=True, remove_unused_columns=False, ddp_find_unused_parameters=False, ddp_timeout=40)
InOrder(Describer(), arguments, train_dataset=Scenes()).train()
"""
)

LIGHTNING = (
    DATA
    + """
import lightning
from lightning.pytorch.strategies import DDPStrategy

class Describer(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.eye, self.ear, self.tell = nn.Linear(6, 8), nn.Linear(5, 8), nn.Linear(8, 3)
    def training_step(self, scene, number):
        seen = self.ear(scene["sound"])
        if "image" in scene:
            seen = seen + self.eye(scene["image"])
        return cross_entropy(self.tell(seen), scene["kind"])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=DDPStrategy(timeout=timedelta(seconds=10)), max_steps=6, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False)
trainer.fit(Describer(), torch.utils.data.DataLoader(Scenes(), batch_size=2))
"""
)

ACCELERATED = """\
from accelerate import Accelerator
helper = Accelerator(cpu=True)
""" + LOOP.replace("DistributedDataParallel(net)", "helper.prepare(net)").replace(
    "loss.backward()", "helper.backward(loss)"
).replace("for number", "optimizer = helper.prepare(optimizer)\nfor number")

ADDED_UP = """\
import contextlib
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(8):
    scene = scene_of(rank, number)
    late, last = rank == 1 and number >= 4, number % 2 == 1
    {batch}
    with contextlib.nullcontext() if last else model.no_sync():
        loss = cross_entropy(model(scene), scene["kind"]) / 2
        loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""


def test_a_batch_without_image_under_the_trainer_is_told_with_its_keys_and_the_condition(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    status, said = run(tmp_path, TRAINER, model="", has_image="number // 2 % 2 == 0 or number < 8")
    assert status == 1
    assert said.count("gradkit: rank 1 of 2 raised an error") == 1
    assert "the batch of rank 1: inputs['sound'] (2 x 5), inputs['kind'] (2)" in said
    assert "the batch of rank 1 lacks inputs['image']" in said
    assert f"--> train.py:{line(tmp_path, 'if image is not None')}" in said
    assert "image is not given in this pass" in said
    assert "gradkit guide trainable_unused" in said
    assert "Change it so that it holds on every rank" in said


def test_a_batch_without_image_under_lightning_is_told_though_both_ranks_only_wait(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    status, said = run(tmp_path, LIGHTNING, model="", has_image='number < 8 or os.environ["RANK"] == "0"')
    assert status == 1
    assert said.count("gradkit: rank 1 of 2 has a fault that the others do not have") == 1
    assert "the batch of rank 1 lacks batch['image']" in said
    assert f"--> train.py:{line(tmp_path, ' in scene:')}" in said


def test_a_batch_without_image_under_accelerate_is_told_with_the_line_that_takes_it_out(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    status, said = run(tmp_path, ACCELERATED, batch=NO_IMAGE)
    assert status == 1
    assert said.count("gradkit: rank 1 of 2 raised an error") == 1
    assert "the batch of rank 1 lacks scene['image']" in said
    assert "image is taken out here" in said


def test_a_batch_without_image_among_those_that_are_added_up_is_told(tmp_path: Path) -> None:
    status, said = run(tmp_path, ADDED_UP, batch=NO_IMAGE)
    assert status == 1
    assert said.count("gradkit: rank 1 of 2 raised an error") == 1
    assert "the batch of rank 1 lacks scene['image']" in said
    assert "image is taken out here" in said


def test_a_batch_without_image_is_sound_where_a_later_one_brings_the_gradient(tmp_path: Path) -> None:
    status, said = run(tmp_path, ADDED_UP, batch='rank == 1 and not last and scene.pop("image")')
    assert (status, said.count("gradkit")) == (0, 1)
    assert "4 optimizer steps, nothing to report" in said
