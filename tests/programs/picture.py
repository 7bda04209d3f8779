"""Real programs of every size, as people write them: for tests and screenshots of the pictures that they give.

Each function builds a model and returns it with its step. Widths are small; depth and wiring are those of the real
thing. Lines that cut end in ``# CUT``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Program = tuple[nn.Module, Callable[[], torch.Tensor]]


def mlp() -> Program:
    """Two layers; what the first computes is detached."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(16, 32)
            self.fc2 = nn.Linear(32, 10)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.fc1(image)).detach()  # CUT
            return self.fc2(hidden)

    net, images, labels = Net(), torch.randn(8, 16), torch.randint(0, 10, (8,))
    return net, lambda: F.cross_entropy(net(images), labels)


def gpt2(layers: int = 12, width: int = 48, frozen: int = 6) -> Program:
    """GPT-2 from its config; somebody wanted to save memory in the lower blocks."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": layers, "n_embd": width, "n_head": 4, "vocab_size": 256, "n_positions": 64}
    gpt = GPT2LMHeadModel(GPT2Config(**sizes)).train()

    class Frugal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = gpt

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            body = self.gpt.transformer
            places = torch.arange(input_ids.shape[1])
            hidden = body.wte(input_ids) + body.wpe(places)
            for number, block in enumerate(body.h):
                with torch.set_grad_enabled(number >= frozen):  # CUT
                    hidden = block(hidden)
            logits = self.gpt.lm_head(body.ln_f(hidden))
            return F.cross_entropy(logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())

    net, ids = Frugal(), torch.randint(0, 256, (2, 16))
    return net, lambda: net(ids)


def qwen_lora(layers: int = 28, width: int = 32) -> Program:
    """A Qwen3 with LoRA that reads images by a projection; the projection is cut off."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=2 * width, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, vocab_size=256, max_position_embeddings=64,
    )  # fmt: skip
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Sequential(nn.Linear(12, width), nn.GELU(), nn.Linear(width, width))
            self.llm = get_peft_model(Qwen3ForCausalLM(config), lora)

        def forward(self, pixels: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
            seen = self.proj(pixels).detach()  # CUT
            read = self.llm.get_input_embeddings()(input_ids)
            labels = F.pad(input_ids, (seen.shape[1], 0), value=-100)
            return self.llm(inputs_embeds=torch.cat([seen, read], 1), labels=labels, use_cache=False).loss

    net, pixels, ids = Reader(), torch.randn(2, 4, 12), torch.randint(0, 256, (2, 8))
    return net, lambda: net(pixels, ids)


def resnet(depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 4) -> Program:
    """A ResNet-50: bottlenecks with shortcuts, in four stages; the third stage is run without a graph."""

    class Bottleneck(nn.Module):
        def __init__(self, inside: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or inside != 4 * width:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
                )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.relu(self.bn2(self.conv2(out)))
            out = self.bn3(self.conv3(out))
            return self.relu(out + (x if self.downsample is None else self.downsample(x)))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
            self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
            inside = width
            for stage, depth in enumerate(depths):
                blocks = []
                for number in range(depth):
                    blocks.append(Bottleneck(inside, width << stage, 2 if stage and not number else 1))
                    inside = 4 * (width << stage)
                setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inside, 10)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
            x = self.layer2(self.layer1(x))
            x = torch.tensor(self.layer3(x).tolist())  # CUT
            return self.fc(self.avgpool(self.layer4(x)).flatten(1))

    net, images, labels = ResNet(), torch.randn(2, 3, 32, 32), torch.randint(0, 10, (2,))
    return net, lambda: F.cross_entropy(net(images), labels)


def unet(width: int = 4, depth: int = 4) -> Program:
    """A U-Net: down, across by skip connections, and up; the skips are detached, and the bottom as well."""

    def block(inside: int, outside: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.Conv2d(outside, outside, 3, padding=1), nn.ReLU()
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [width << level for level in range(depth + 1)]
            self.down = nn.ModuleList(block(i, o) for i, o in zip([1, *sizes], sizes[:-1], strict=False))
            self.bottom = block(sizes[-2], sizes[-1])
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in reversed(sizes[:-1]))
            self.merge = nn.ModuleList(block(2 * size, size) for size in reversed(sizes[:-1]))
            self.head = nn.Conv2d(width, 2, 1)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            skips, x = [], image
            for down in self.down:
                x = down(x)
                skips.append(x)
                x = F.max_pool2d(x, 2)
            x = self.bottom(x).detach()  # CUT
            for up, merge, skip in zip(self.up, self.merge, reversed(skips), strict=True):
                x = merge(torch.cat([up(x), skip], 1))
            return self.head(x)

    net, images = UNet(), torch.randn(1, 1, 32, 32)
    masks = torch.randint(0, 2, (1, 32, 32))
    return net, lambda: F.cross_entropy(net(images), masks)


def two_cuts() -> Program:
    """Two losses, each cut off from a part of its own, by two lines."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(16, 8), nn.Linear(8, 16)
            self.codes, self.head = nn.Embedding(32, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            latent = self.encoder(x)
            nearest = torch.cdist(latent, self.codes.weight).argmin(1)
            code = self.codes(nearest).detach()  # CUT
            return self.decoder(code + 0.0), self.head(torch.from_numpy(latent.detach().numpy()))  # CUT

    net, x, labels = Net(), torch.randn(8, 16), torch.randint(0, 4, (8,))

    def step() -> torch.Tensor:
        again, logits = net(x)
        return F.mse_loss(again, x) + F.cross_entropy(logits, labels)

    return net, step


def all_frozen() -> Program:
    """A body that was frozen for the head's sake, and the head with it."""
    body = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(6)))
    net = nn.Sequential(body, nn.Linear(16, 4))
    for parameter in net.parameters():
        parameter.requires_grad = False  # CUT
    x, labels = torch.randn(8, 16), torch.randint(0, 4, (8,))
    return net, lambda: F.cross_entropy(net(x), labels)


def rnn(steps: int = 2000) -> Program:
    """A recurrent cell, step by step; half of the way the state is detached."""

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cell, self.out = nn.Linear(2, 4), nn.GRUCell(4, 4), nn.Linear(4, 1)

        def forward(self, sequence: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(1, 4)
            for item in self.embed(sequence).detach():  # CUT
                state = self.cell(item, state)
            return self.out(state)

    net, sequence = Reader(), torch.randn(steps, 1, 2)
    return net, lambda: net(sequence).square().mean()


def residual(blocks: int = 700) -> Program:
    """Very many like blocks in a row, with more than 5,000 nodes; half of the way the stream is detached."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0.1 * self.down(self.up(x).relu()).tanh()

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.head = nn.ModuleList(Block() for _ in range(blocks)), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for at, block in enumerate(self.blocks):
                x = block(x)
                if at == blocks // 2:
                    x = x.detach()  # CUT
            return self.head(x)

    net, x = Stack(), torch.randn(2, 4)
    return net, lambda: net(x).mean()


def experts(count: int = 256) -> Program:
    """A mixture of experts, all in use; the router's choice is cut."""

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(8, count)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(count)
            )
            self.head = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = self.router(x).softmax(-1).detach()  # CUT
            mixed = torch.stack([expert(x) for expert in self.experts], -1)
            return self.head((mixed * weights[:, None]).sum(-1))

    net, x, labels = Mixture(), torch.randn(4, 8), torch.randint(0, 2, (4,))
    return net, lambda: F.cross_entropy(net(x), labels)


def deep_lora() -> Program:
    """48 layers with LoRA: more than 5,000 nodes."""
    return qwen_lora(layers=48)


ALL: dict[str, Callable[[], Program]] = {
    "mlp": mlp,
    "gpt2": gpt2,
    "qwen_lora": qwen_lora,
    "resnet": resnet,
    "unet": unet,
    "two_cuts": two_cuts,
    "all_frozen": all_frozen,
    "rnn": rnn,
    "experts": experts,
    "deep_lora": deep_lora,
}
