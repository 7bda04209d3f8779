"""A model of images whose checkpointing the Trainer switches on. Each function says whether its blocks learn."""

import torch

from gradkit.teaching.guides.loops import moved, trainer_train


def trained(**arguments):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = ViTForImageClassification(ViTConfig(**sizes, image_size=4, patch_size=2, num_labels=2))
    model.vit.embeddings.requires_grad_(False)
    data = [{"pixel_values": torch.randn(3, 4, 4), "labels": number % 2} for number in range(8)]
    weight = next(p for name, p in model.named_parameters() if "layer" in name and name.endswith("weight"))
    return moved(weight, lambda: trainer_train(model, data, gradient_checkpointing=True, **arguments))


def wrong_trainer():
    return trained(gradient_checkpointing_kwargs={"use_reentrant": True})


def right_trainer():
    # [trainer]
    arguments = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}  # TrainingArguments(..., **arguments)
    # [end]
    return trained(**arguments)
