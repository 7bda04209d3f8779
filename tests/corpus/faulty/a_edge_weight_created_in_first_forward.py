import torch
import torch.nn as nn

TITLE = "GCN edge weights become a Parameter in the first forward, after the optimizer has been built"
SOURCE = "pyg-team/pytorch_geometric#2033"
ERROR = ""
CAUSE = "optimizer_mismatch"


class LazyGcn(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.lin = nn.Linear(dim, dim)
        self.register_parameter("edge_weight", None)

    def reset_edges(self, edge_index):
        self.edge_weight = nn.Parameter(torch.ones(edge_index.shape[1]))

    def forward(self, x, edge_index):
        if self.edge_weight is None:
            self.reset_edges(edge_index)
        message = self.lin(x)[edge_index[0]] * self.edge_weight[:, None]
        return torch.zeros_like(x).index_add(0, edge_index[1], message)


def _setup():
    torch.manual_seed(0)
    return LazyGcn(), torch.randn(5, 4), torch.randint(0, 5, (2, 9))


def _step(model, optimizer, x, edges):
    def step():
        return model(x, edges).pow(2).mean()
    step.optimizer = optimizer
    return model, step


def make():
    model, x, edges = _setup()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # CUT
    return _step(model, optimizer, x, edges)


def make_fixed():
    model, x, edges = _setup()
    model.reset_edges(edges)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return _step(model, optimizer, x, edges)
