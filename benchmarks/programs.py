"""The models that are measured. Each is made by its name: the model, and the tensors that it is called with."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

GROWTH = (3, 6, 12, 24, 48)
NAMES = ("mlp", "resnet", "gpt2")
GPT = {"gpt": (2, 128), "gpt-long": (8, 1024)}  # batch and tokens
CALLS = {"mlp": 50}  # passes in one measurement, so that the clock can tell; 1 for all others


class Classifier(nn.Module):
    """A network with its loss."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss, a scalar."""
        return F.cross_entropy(self.net(inputs), labels)


class Bottleneck(nn.Module):
    """The block that ResNet-50 is made of: 1x1, 3x3, 1x1, and a way round."""

    def __init__(self, width: int, inner: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner),
        )  # fmt: skip
        same = stride == 1 and width == 4 * inner
        around = nn.Conv2d(width, 4 * inner, 1, stride, bias=False)
        self.around = nn.Identity() if same else nn.Sequential(around, nn.BatchNorm2d(4 * inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As in the paper."""
        return F.relu(self.path(x) + self.around(x))


def resnet() -> nn.Module:
    """16 blocks in four stages, 25.6 million parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for inner, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(count):
            layers.append(Bottleneck(width, inner, stride if block == 0 else 1))
            width = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


class Language(nn.Module):
    """GPT-2 from its configuration, with its loss."""

    def __init__(self, **config: int) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel, logging

        logging.set_verbosity_error()
        self.net = GPT2LMHeadModel(GPT2Config(**config))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss, a scalar."""
        loss: torch.Tensor = self.net(input_ids=tokens, labels=tokens).loss
        return loss


class Block(nn.Module):
    """A block of GPT-2: attention and a feed-forward part, each on the normed sum of what came before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``: batch, tokens, width; so is what comes out."""
        parts = self.attend(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.join(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 small with its loss, 124 million parameters, of torch alone: where transformers is not installed."""

    def __init__(self, words: int = 50257, width: int = 768, layers: int = 12, places: int = 1024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss, a scalar."""
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        logits = F.linear(self.norm(self.blocks(x)), self.words.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class Memory(nn.Module):
    """8,607,498,496 parameters, of them 18,882,560 in a projection that trains, in front of a frozen Qwen3-8B.

    A frozen table stands in for a vision tower.
    """

    def __init__(self) -> None:
        super().__init__()
        from transformers import Qwen3Config, Qwen3ForCausalLM

        config = Qwen3Config(
            vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
            num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        )  # fmt: skip
        self.tower = nn.Embedding(1_554_221, 256)
        self.language = Qwen3ForCausalLM(config)
        self.requires_grad_(False)
        self.projection = nn.Sequential(nn.Linear(512, 4096), nn.GELU(), nn.Linear(4096, 4096))

    def forward(self, seen: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The loss, a scalar."""
        words = self.language.get_input_embeddings()(tokens)
        logits = self.language(inputs_embeds=torch.cat([self.projection(seen), words], dim=1)).logits
        return F.cross_entropy(logits[:, seen.shape[1] :].flatten(0, 1).float(), tokens.flatten())


def make(name: str, device: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """``mlp`` (batch 8), ``resnet`` (4x3x128x128), ``gpt2`` (2x128), ``gpt2-24`` (24 layers of 256) or ``memory``.

    ``gpt`` (2x128) and ``gpt-long`` (8x1024) are GPT-2 small without transformers, on a GPU in bfloat16.
    """
    torch.manual_seed(0)
    if name == "mlp":
        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
        return Classifier(net).to(device), (torch.randn(8, 32, device=device), _labels(10, (8,), device))
    if name == "resnet":
        inputs = torch.randn(4, 3, 128, 128, device=device)
        return Classifier(resnet()).to(device), (inputs, _labels(1000, (4,), device))
    if name == "memory":
        with torch.device("meta"):
            return Memory(), (torch.empty(1, 4, 512), torch.empty(1, 28, dtype=torch.long))
    if name in GPT:
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        return Gpt().to(device, dtype), (_labels(50257, GPT[name], device),)
    if name == "gpt2":
        return Language().to(device), (_labels(50257, (2, 128), device),)
    layers = int(name.removeprefix("gpt2-"))
    small = Language(n_layer=layers, n_embd=256, n_head=4, vocab_size=1000)
    return small.to(device), (_labels(1000, (2, 128), device),)


def _labels(most: int, shape: tuple[int, ...], device: str) -> torch.Tensor:
    return torch.randint(most, shape, device=device)
