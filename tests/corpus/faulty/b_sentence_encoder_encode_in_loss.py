import torch
import torch.nn as nn

TITLE = "embeddings from encode() used in a larger model: they come out without history"
SOURCE = "huggingface/sentence-transformers#274"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "no_grad_block"
SHOULD_TRAIN = ["0.weight", "1.weight"]


class Pool(nn.Module):
    def forward(self, h):
        return nn.functional.normalize(h.mean(1), dim=-1)


class SentenceEncoder(nn.Sequential):
    def tokenize(self, texts):
        return torch.tensor([[ord(c) % 30 for c in t.ljust(12)[:12]] for t in texts])

    def encode(self, texts):
        was_training = self.training
        self.eval()
        with torch.no_grad():  # CUT
            out = self(self.tokenize(texts))
        self.train(was_training)
        return out


class TrainableEncoder(SentenceEncoder):
    def encode(self, texts):
        return self(self.tokenize(texts))


def _program(kind):
    torch.manual_seed(0)
    model = kind(nn.Embedding(30, 8), nn.Linear(8, 8), Pool())

    def step():
        a, b = model.encode(["a cat", "two dogs"]), model.encode(["one cat", "some dogs"])
        return nn.functional.cross_entropy(a @ b.t() / 0.05, torch.arange(2))
    return model, step


def make():
    return _program(SentenceEncoder)


def make_fixed():
    return _program(TrainableEncoder)
