import torch
import torch.nn as nn

TITLE = "'tune the vision tower' option set, yet its forward is decorated: the tower never changes"
SOURCE = "TinyLLaVA/TinyLLaVA_Factory#17"
ERROR = ""
CAUSE = "no_grad_decorator"
SHOULD_TRAIN = ["tower.conv.weight", "connector.weight"]


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 2, stride=2)

    def select(self, feature):
        return feature.flatten(2).transpose(1, 2)


class DecoratedTower(Tower):
    @torch.no_grad()  # CUT
    def forward(self, image):
        return self.select(self.conv(image))


class PlainTower(Tower):
    def forward(self, image):
        return self.select(self.conv(image))


class Model(nn.Module):
    def __init__(self, tower, tune_vision_tower=True):
        super().__init__()
        self.tower = tower().requires_grad_(tune_vision_tower)
        self.connector, self.llm = nn.Linear(6, 8), nn.GRU(8, 8, batch_first=True)

    def forward(self, image):
        return self.llm(self.connector(self.tower(image)))[0][:, -1]


def _program(tower):
    torch.manual_seed(0)
    model, image, y = Model(tower), torch.randn(3, 3, 4, 4), torch.randint(0, 8, (3,))
    return model, lambda: nn.functional.cross_entropy(model(image), y)


def make():
    return _program(DecoratedTower)


def make_fixed():
    return _program(PlainTower)
