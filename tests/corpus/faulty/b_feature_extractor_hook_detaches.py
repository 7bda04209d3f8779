import torch
import torch.nn as nn

TITLE = "captioner on top of a ViT wrapped in an 'extractor': the hook keeps a detached copy, the ViT never learns"
SOURCE = "lucidrains/CoCa-pytorch#6"
ERROR = ""
CAUSE = "detach"
SHOULD_TRAIN = ["extractor.vit.0.weight", "decoder.weight"]


class Extractor(nn.Module):
    def __init__(self, vit, layer):
        super().__init__()
        self.vit, self.latents = vit, None
        layer.register_forward_hook(self.keep)

    def keep(self, module, args, out):
        self.latents = out.clone().detach()  # CUT

    def forward(self, image):
        self.vit(image)
        return self.latents


class ExtractorFixed(Extractor):
    def keep(self, module, args, out):
        self.latents = out


class CoCa(nn.Module):
    def __init__(self, extractor):
        super().__init__()
        vit = nn.Sequential(nn.Linear(12, 8), nn.LayerNorm(8), nn.Linear(8, 3))
        self.extractor, self.decoder = extractor(vit, vit[1]), nn.Linear(8, 20)

    def forward(self, image):
        return self.decoder(self.extractor(image))


def _program(extractor):
    torch.manual_seed(0)
    model, image, y = CoCa(extractor), torch.randn(5, 12), torch.randint(0, 20, (5,))
    return model, lambda: nn.functional.cross_entropy(model(image), y)


def make():
    return _program(Extractor)


def make_fixed():
    return _program(ExtractorFixed)
