"""Sound programs that look like `inplace_modified` and are not."""

from __future__ import annotations

import torch

from tests.programs.shared import Built, batch, small, sound

# -- operations -------------------------------------------------------------------------------------------------------


@sound
def in_place_operations_on_views() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        hidden = model[0](x).clone()
        hidden[:, 0:2].mul_(2)
        hidden.view(-1)[0] += 1
        hidden.t()[0].add_(1)
        return model[2](hidden.tanh()).sum()

    return model, step


@sound
def assignment_into_zeros() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        hidden, out = torch.zeros(6, 8), torch.zeros(6)
        hidden[:3], hidden[3:] = model[0](x[:3]), model[0](x[3:])
        for i in range(6):
            out[i] = model[2](hidden[i]).squeeze()
        return out.sum()

    return model, step


@sound
def sparse_tensors_that_are_added_to_before_their_use() -> Built:
    model, x = small(), batch()
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])

    def step() -> torch.Tensor:
        weights = model(x).flatten()[:3]
        graph = torch.sparse_coo_tensor(edges, weights, (3, 3), check_invariants=False)
        loops = torch.sparse_coo_tensor(edges, torch.ones(3), (3, 3), check_invariants=False)
        loops += loops
        return torch.sparse.mm(graph + loops, x[:3]).sum()

    return model, step
