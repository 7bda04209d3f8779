import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

BELIEVED = {"eval_output_requires_grad": False, "eval_keeps_nothing_for_backward": True}


def kept(model, batch):
    tensors = []
    with saved_tensors_hooks(lambda tensor: tensors.append(tensor) or tensor, lambda tensor: tensor):
        output = model(batch)
    return output, len(tensors)


def observe():
    model, batch = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(5, 4)
    _, in_training = kept(model.train(), batch)
    output, in_evaluation = kept(model.eval(), batch)
    with torch.no_grad():
        _, under_no_grad = kept(model, batch)
    return {
        "eval_output_requires_grad": output.requires_grad,
        "eval_keeps_nothing_for_backward": in_evaluation == 0,
        "kept_in_train": in_training,
        "kept_in_eval": in_evaluation,
        "kept_under_no_grad": under_no_grad,
    }
