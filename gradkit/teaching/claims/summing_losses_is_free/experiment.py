import torch
from torch import nn

BELIEVED = {"no_graph_is_kept": True}


def nodes(tensor):
    seen, todo = set(), [tensor.grad_fn] if isinstance(tensor, torch.Tensor) else []
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions]
    return len(seen)


def kept(steps, read):
    model, total = nn.Linear(3, 1), 0.0
    for _ in range(steps):
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        total = total + read(loss)
    return nodes(total)


def observe():
    return {
        "no_graph_is_kept": kept(10, lambda loss: loss) == 0,
        "nodes_after_10_steps": kept(10, lambda loss: loss),
        "nodes_after_20_steps": kept(20, lambda loss: loss),
        "nodes_after_20_steps_with_item": kept(20, lambda loss: loss.item()),
    }
