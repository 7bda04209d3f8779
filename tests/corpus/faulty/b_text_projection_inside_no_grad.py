import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "image-text contrastive model: the fresh text projection sits in the no_grad block with the frozen encoder"
SOURCE = "edreisMD/ConVIRT-pytorch#7"
ERROR = ""
CAUSE = "no_grad_block"
SHOULD_TRAIN = ["text_proj.weight", "image_proj.weight"]


class Convirt(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = nn.Embedding(30, 12).requires_grad_(False)
        self.cnn = nn.Linear(10, 12)
        self.text_proj, self.image_proj = nn.Linear(12, 6), nn.Linear(12, 6)


class Broken(Convirt):
    def forward(self, image, report):
        zi = self.image_proj(F.relu(self.cnn(image)))
        with torch.no_grad():  # CUT
            zt = self.text_proj(self.bert(report).mean(1))
        return zi, zt


class Cured(Convirt):
    def forward(self, image, report):
        zi = self.image_proj(F.relu(self.cnn(image)))
        with torch.no_grad():
            h = self.bert(report).mean(1)
        return zi, self.text_proj(h)


def _program(kind):
    torch.manual_seed(0)
    model, image, report = kind(), torch.randn(5, 10), torch.randint(0, 30, (5, 7))

    def step():
        zi, zt = model(image, report)
        scores = F.normalize(zi, dim=-1) @ F.normalize(zt, dim=-1).t() / 0.1
        return F.cross_entropy(scores, torch.arange(5)) + F.cross_entropy(scores.t(), torch.arange(5))
    return model, step


def make():
    return _program(Broken)


def make_fixed():
    return _program(Cured)
