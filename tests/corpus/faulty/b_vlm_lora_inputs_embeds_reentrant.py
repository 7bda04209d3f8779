import torch
import torch.nn as nn
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

TITLE = "vision-language LoRA: ready-made inputs_embeds skip the embedding hook, reentrant checkpointing cuts all"
SOURCE = "huggingface/trl#3089 (vision-language variant: om-ai-lab/VLM-R1#26)"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "checkpoint_reentrant"
SHOULD_TRAIN = None


class Vlm(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        cfg = Qwen2Config(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                          num_attention_heads=2, num_key_value_heads=2)
        self.vision = nn.Linear(12, 32).requires_grad_(False)
        self.table = nn.Embedding(40, 32).requires_grad_(False)
        self.llm = get_peft_model(Qwen2ForCausalLM(cfg), LoraConfig(
            r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
        self.llm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        self.llm.train()


class Broken(Vlm):
    def forward(self, patches, ids):
        embeds = torch.cat([self.vision(patches), self.table(ids)], 1)
        labels = torch.cat([torch.full(patches.shape[:2], -100), ids], 1)
        return self.llm(inputs_embeds=embeds, labels=labels).loss  # CUT


class Cured(Vlm):
    def forward(self, patches, ids):
        embeds = torch.cat([self.vision(patches), self.table(ids)], 1).requires_grad_(True)
        labels = torch.cat([torch.full(patches.shape[:2], -100), ids], 1)
        return self.llm(inputs_embeds=embeds, labels=labels).loss


def _program(kind):
    model = kind(True)
    patches, ids = torch.randn(2, 3, 12), torch.randint(0, 40, (2, 5))
    return model, lambda: model(patches, ids)


def make():
    return _program(Broken)


def make_fixed():
    return _program(Cured)
