import torch

BELIEVED = dict.fromkeys(["max", "values_of_max", "topk_values", "indices_of_max", "argmax"], False)


def slope(largest):
    tied = torch.tensor([1.0, 1.0, 0.0], requires_grad=True)
    largest(tied).backward()
    return tied.grad.tolist()


def observe():
    weight = torch.tensor([[0.1, 0.7], [0.9, 0.2]], requires_grad=True)
    values, indices = weight.max(dim=1)
    return {
        "max": weight.max().requires_grad,
        "values_of_max": values.requires_grad,
        "topk_values": weight.topk(1).values.requires_grad,
        "indices_of_max": indices.requires_grad,
        "argmax": weight.argmax().requires_grad,
        "gradient_of_a_tie": slope(lambda tied: tied.max()),
        "gradient_of_a_tie_by_dim": slope(lambda tied: tied.max(dim=0).values),
    }
