import torch
import torch.nn as nn

TITLE = "projector-only pre-training where the data stage drops pixel_values: the projector is never called"
SOURCE = "hiyouga/LlamaFactory#4707"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "trainable_unused"
SHOULD_TRAIN = ["projector.weight", "projector.bias"]


class Vlm(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.table, self.head = nn.Linear(12, 16), nn.Embedding(20, 8), nn.Linear(8, 20)
        self.requires_grad_(False)
        self.projector = nn.Linear(16, 8)

    def forward(self, ids, labels, pixel_values=None):
        h = self.table(ids)
        if pixel_values is not None:
            h = torch.cat([self.projector(self.vision(pixel_values)), h], 1)
        logits = self.head(torch.tanh(h.cumsum(1)))[:, -ids.shape[1]:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def collate(rows):
    return {"ids": torch.stack([r["ids"] for r in rows]),  # CUT
            "labels": torch.stack([r["ids"] for r in rows])}


def collate_fixed(rows):
    return {"ids": torch.stack([r["ids"] for r in rows]), "labels": torch.stack([r["ids"] for r in rows]),
            "pixel_values": torch.stack([r["pixel_values"] for r in rows])}


def _program(collate):
    torch.manual_seed(0)
    model = Vlm()
    rows = [{"ids": torch.randint(0, 20, (5,)), "pixel_values": torch.randn(3, 12)} for _ in range(2)]
    return model, lambda: model(**collate(rows))


def make():
    return _program(collate)


def make_fixed():
    return _program(collate_fixed)
