import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

TITLE = "adapter loaded with is_trainable=True, whole model in eval() mode: LoRA still receives gradients"
SOURCE = "huggingface/peft#120 (there train() was thought to be the switch)"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = None


def base():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=2))


def make():
    with tempfile.TemporaryDirectory() as folder:
        get_peft_model(base(), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)).save_pretrained(folder)
        model = PeftModel.from_pretrained(base(), folder, is_trainable=True).eval()
    ids = torch.arange(12).reshape(2, 6)
    return model, lambda: model(input_ids=ids, labels=ids).loss
