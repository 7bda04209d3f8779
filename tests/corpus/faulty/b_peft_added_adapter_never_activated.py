import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

TITLE = "a second adapter is added next to a frozen one, but the forward pass still runs the first"
SOURCE = "huggingface/peft#837"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "adapter_inactive"
SHOULD_TRAIN = None


def base():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=2))


CFG = dict(r=2, target_modules=["q_proj"], init_lora_weights=False)


def add_second(model):
    model.add_adapter("second", LoraConfig(**CFG, inference_mode=False))  # CUT


def add_second_fixed(model):
    model.add_adapter("second", LoraConfig(**CFG, inference_mode=False))
    model.set_adapter("second")


def _program(add):
    with tempfile.TemporaryDirectory() as folder:
        get_peft_model(base(), LoraConfig(**CFG)).save_pretrained(folder)
        model = PeftModel.from_pretrained(base(), folder, adapter_name="first", is_trainable=False)
    add(model)
    model.train()
    ids = torch.arange(12).reshape(2, 6)
    return model, lambda: model(input_ids=ids, labels=ids).loss


def make():
    return _program(add_second)


def make_fixed():
    return _program(add_second_fixed)
