import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "graph learning: only the top-k INDICES of the learned adjacency reach the GNN, so the scorer is not trained"
SOURCE = "pyg-team/pytorch_geometric#345"
ERROR = ""
CAUSE = "non_differentiable_op"
SHOULD_TRAIN = ["source.weight", "sink.weight"]


class GraphLearner(nn.Module):
    def __init__(self, dim=5, k=3):
        super().__init__()
        self.source, self.sink = nn.Linear(dim, 4, bias=False), nn.Linear(dim, 4, bias=False)
        self.lin, self.k = nn.Linear(dim, 2), k

    def edges(self, x):
        adjacency = self.source(x) @ self.sink(x).t()
        neighbours = adjacency.topk(self.k, dim=1).indices  # CUT
        src = torch.arange(x.shape[0]).repeat_interleave(self.k)
        return torch.stack([src, neighbours.flatten()]), torch.ones(src.shape[0])

    def propagate(self, x, edge_index, edge_weight):
        message = self.lin(x)[edge_index[1]] * edge_weight[:, None]
        return torch.zeros(x.shape[0], 2).index_add(0, edge_index[0], message)

    def forward(self, x):
        return self.propagate(x, *self.edges(x))


class FixedLearner(GraphLearner):
    def edges(self, x):
        best = (self.source(x) @ self.sink(x).t()).topk(self.k, dim=1)
        src = torch.arange(x.shape[0]).repeat_interleave(self.k)
        return torch.stack([src, best.indices.flatten()]), torch.sigmoid(best.values).flatten()


def _program(cls):
    torch.manual_seed(0)
    model, x, y = cls(), torch.randn(8, 5), torch.randint(0, 2, (8,))
    return model, lambda: F.cross_entropy(model(x), y)


def make():
    return _program(GraphLearner)


def make_fixed():
    return _program(FixedLearner)
