import json
import tempfile
from pathlib import Path

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

BELIEVED = {"trainable_as_loaded": 0, "trainable_with_is_trainable": 2}


def base():
    return nn.Sequential(nn.Linear(4, 4))


def trainable(model):
    return sum(p.requires_grad for p in model.parameters())


def observe():
    with tempfile.TemporaryDirectory() as folder:
        get_peft_model(base(), LoraConfig(target_modules=["0"])).save_pretrained(folder)
        file = Path(folder, "adapter_config.json")
        saved, loaded = json.loads(file.read_text()), trainable(PeftModel.from_pretrained(base(), folder))
        file.write_text(json.dumps({**saved, "inference_mode": False}))
        return {
            "saved_as_inference_mode": saved["inference_mode"],
            "trainable_as_loaded": loaded,
            "trainable_where_the_file_says_otherwise": trainable(PeftModel.from_pretrained(base(), folder)),
            "trainable_with_is_trainable": trainable(PeftModel.from_pretrained(base(), folder, is_trainable=True)),
        }
