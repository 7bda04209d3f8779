import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "generator guided by a frozen scorer through resize and normalise transforms; the reference image is under no_grad"
SOURCE = "rinongal/StyleGAN-nada#58"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["trainable.0.weight", "trainable.2.weight"]


class Nada(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 27)).requires_grad_(False)
        self.trainable = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 27))
        self.clip = nn.Conv2d(3, 4, 3).requires_grad_(False).eval()

    def preprocess(self, image):
        image = F.interpolate(image, size=(7, 7), mode="bilinear", align_corners=False)
        return (image - image.new_tensor([0.5, 0.4, 0.4]).view(1, 3, 1, 1)) / 0.25

    def encode(self, w, net):
        feature = self.clip(self.preprocess(net(w).view(-1, 3, 3, 3))).flatten(1)
        return feature / feature.clone().norm(dim=-1, keepdim=True)

    def forward(self, w, direction):
        with torch.no_grad():
            source = self.encode(w, self.frozen)
        edit = self.encode(w, self.trainable) - source
        return (1 - F.cosine_similarity(edit, direction.expand_as(edit))).mean()


def make():
    torch.manual_seed(0)
    model, w, direction = Nada(), torch.randn(4, 5), torch.randn(1, 100)
    return model, lambda: model(w, direction)
