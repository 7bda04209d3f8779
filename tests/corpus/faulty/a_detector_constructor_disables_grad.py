import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "a face detector built for cropping calls set_grad_enabled(False) in its constructor and never undoes it"
SOURCE = "choyingw/SynergyNet#22 (pull request)"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "grad_disabled_globally"


class BoxDetector:
    def __init__(self):
        torch.set_grad_enabled(False)  # CUT
        self.net = nn.Conv2d(3, 1, 3, padding=1).eval()

    def __call__(self, image):
        heat = self.net(image)
        top = heat.flatten(1).argmax(1)[0].item()
        row, col = divmod(top, heat.shape[-1])
        return min(row, 4), min(col, 4)


class ScopedDetector(BoxDetector):
    def __init__(self):
        self.net = nn.Conv2d(3, 1, 3, padding=1).eval()

    @torch.no_grad()
    def __call__(self, image):
        return super().__call__(image)


class Landmarks(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, 10)

    def forward(self, crop):
        return self.fc(F.relu(self.conv(crop)).mean((2, 3)))


def _program(detector_class):
    torch.manual_seed(0)
    model, image, points = Landmarks(), torch.rand(1, 3, 12, 12), torch.rand(1, 10)
    detector = detector_class()

    def step():
        r, c = detector(image)
        return F.smooth_l1_loss(model(image[:, :, r:r + 8, c:c + 8]), points)
    return model, step


def make():
    return _program(BoxDetector)


def make_fixed():
    return _program(ScopedDetector)
