"""A run of the Trainer that is resumed with its adapter. Each function says whether the adapter goes on learning."""

import tempfile
from pathlib import Path

import torch
from torch import nn

from gradkit.teaching.guides.loops import moved


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x, labels):
        scores = self.head(torch.tanh(self.body(x)))
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def lora():
    from peft import LoraConfig

    return LoraConfig(r=2, target_modules=["body"], init_lora_weights=False)


def trainer(model, folder, epochs, callbacks=()):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        str(folder), num_train_epochs=epochs, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        disable_tqdm=True, save_strategy="epoch", learning_rate=0.1, remove_unused_columns=False,
    )  # fmt: skip
    data = [{"x": torch.randn(4), "labels": number % 2} for number in range(8)]
    return Trainer(model, arguments, train_dataset=data, callbacks=list(callbacks))


def resumed(again):
    from peft import get_peft_model

    base = Net()
    with tempfile.TemporaryDirectory() as folder:
        start = {name: value.clone() for name, value in base.state_dict().items()}
        trainer(get_peft_model(base, lora()), folder, 1).train()
        (checkpoint,) = Path(folder).glob("checkpoint-*")
        base = Net()
        base.load_state_dict(start)
        return again(base, checkpoint, folder)


def lora_weight(model):
    return next(p for name, p in model.named_parameters() if "lora_B" in name)


def beginning(model, saved, begun):
    """Notes whether training begins with the saved values."""
    from transformers import TrainerCallback

    class Begin(TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            begun.append(torch.equal(lora_weight(model), saved))

    return Begin()


def wrong_trainer():
    from peft import PeftModel

    def again(base, checkpoint, folder):
        model = PeftModel.from_pretrained(base, str(checkpoint))
        return moved(lora_weight(model), lambda: trainer(model, folder, 2).train())

    return resumed(again)


def right_trainer():
    from peft import get_peft_model
    from safetensors.torch import load_file

    def again(base, checkpoint, folder):
        weights = load_file(checkpoint / "adapter_model.safetensors")
        saved = next(value for name, value in weights.items() if "lora_B" in name)
        begun = []

        def make(model):
            return trainer(model, folder, 2, [beginning(model, saved, begun)])

        # [trainer]
        model = get_peft_model(base, lora())  # as in the first run: it is trainable
        make(model).train(resume_from_checkpoint=str(checkpoint))  # make: Trainer(model, ...) as in the first run
        # [end]
        return begun == [True] and not torch.equal(lora_weight(model), saved)

    return resumed(again)
