import torch

BELIEVED = dict.fromkeys(["max", "values_of_max", "topk_values", "indices_of_max", "argmax"], False)


def observe():
    weight = torch.tensor([[0.1, 0.7], [0.9, 0.2]], requires_grad=True)
    values, indices = weight.max(dim=1)
    return {
        "max": weight.max().requires_grad,
        "values_of_max": values.requires_grad,
        "topk_values": weight.topk(1).values.requires_grad,
        "indices_of_max": indices.requires_grad,
        "argmax": weight.argmax().requires_grad,
    }
