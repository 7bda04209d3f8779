import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

BELIEVED = {"full_precision_keeps_less": True}


def bytes_kept(mixed):
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64), nn.Tanh()] * 4
    model, batch = nn.Sequential(*layers), torch.randn(2048, 64)
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            model(batch)
    return sum(storage.nbytes() for storage in kept.values())


def observe():
    full, mixed = bytes_kept(False), bytes_kept(True)
    return {"full_precision_keeps_less": full < mixed, "times_as_much_in_full_precision": round(full / mixed, 1)}
