"""The loops of libraries as the variants of guides run them: on the CPU, small, and without a word."""

import os
import tempfile
from unittest import mock

import torch


RAISED = (
    "does not require grad",
    "Expected to have finished reduction in the prior iteration",
    "Inference tensors cannot be saved for backward",
    "parameters that were not used in producing the loss",
    "`training_step` must return a Tensor, a dict, or None",
)
"""How the faults of the guides are told by torch and the libraries; any other error is one of the variant itself."""


def moved(parameter, run):
    """Whether training went through and changed a parameter; False also where one of ``RAISED`` ended it."""
    before = parameter.detach().clone()
    try:
        run()
    except Exception as error:
        if not any(told in str(error) for told in RAISED):
            raise
        return False
    return not torch.equal(parameter.detach(), before)


def lightning_trainer(**options):
    import lightning

    return lightning.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **{"max_epochs": 1, **options},
    )  # fmt: skip


def batches(data):
    return torch.utils.data.DataLoader(data, batch_size=4)


def lightning_fit(module, data, validation=None, **options):
    with mock.patch.dict(os.environ):  # where a strategy leaves its rank
        lightning_trainer(**options).fit(module, batches(data), None if validation is None else batches(validation))


def trainer_train(model, data, kind=None, more=None, **arguments):
    """Train a model by transformers' Trainer, or by a ``kind`` of it; the trainer that did it."""
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        settings = {"num_train_epochs": 1, "per_device_train_batch_size": 4, "learning_rate": 0.1, "save_strategy": "no"}
        settings |= {"use_cpu": True, "report_to": [], "disable_tqdm": True, **arguments}
        trainer = (kind or Trainer)(model, TrainingArguments(folder, **settings), train_dataset=data, **(more or {}))
        trainer.train()
    return trainer


def one_process_group():
    """What DDP needs, for a single process."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
