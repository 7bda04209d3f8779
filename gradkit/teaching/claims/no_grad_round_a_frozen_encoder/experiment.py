import torch
from torch import nn

BELIEVED = {"projection_gets_gradient": False}


def gradients(switch):
    torch.manual_seed(0)
    adapter, encoder, projection = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2)
    before = adapter(torch.randn(3, 4))
    with switch():
        features = encoder(before)
    projection(features).square().sum().backward()
    return adapter.weight.grad, projection.weight.grad


def kept(*layers):
    kept, values = [], torch.randn(3, 4)
    for number, layer in enumerate(layers, 1):
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(number), lambda _: None):
            values = layer(values)
    return kept.count(len(layers))


def observe():
    with_block, without = gradients(torch.no_grad), gradients(torch.enable_grad)
    return {
        "projection_gets_gradient": with_block[1] is not None,
        "the_same_as_without_the_block": torch.equal(with_block[1], without[1]),
        "layer_before_gets_gradient": with_block[0] is not None,
        "layer_before_gets_gradient_without_the_block": without[0] is not None,
        "kept_without_a_layer_before": kept(nn.Linear(4, 4).requires_grad_(False)),
        "kept_with_a_layer_before": kept(nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)),
    }
