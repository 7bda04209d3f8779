import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

BELIEVED = {"eval_output_requires_grad": False, "eval_keeps_nothing_for_backward": True}


def kept(model, batch):
    sizes = []
    with saved_tensors_hooks(lambda tensor: sizes.append(tensor.nbytes) or tensor, lambda tensor: tensor):
        output = model(batch)
    return output, sum(sizes)


def observe():
    batch = torch.randn(5, 4)
    model, dropping, normed = (
        nn.Sequential(nn.Linear(4, 8), *between, nn.Linear(8, 1))
        for between in ([nn.ReLU()], [nn.Dropout(), nn.ReLU()], [nn.BatchNorm1d(8), nn.ReLU()])
    )
    output, in_evaluation = kept(model.eval(), batch)
    with torch.no_grad():
        _, under_no_grad = kept(model, batch)
    return {
        "eval_output_requires_grad": output.requires_grad,
        "eval_keeps_nothing_for_backward": in_evaluation == 0,
        "kept_in_train": kept(model.train(), batch)[1],
        "kept_in_eval": in_evaluation,
        "kept_under_no_grad": under_no_grad,
        "kept_in_train_with_dropout": kept(dropping.train(), batch)[1],
        "kept_in_eval_with_dropout": kept(dropping.eval(), batch)[1],
        "kept_in_train_with_batch_norm": kept(normed.train(), batch)[1],
        "kept_in_eval_with_batch_norm": kept(normed.eval(), batch)[1],
    }
