"""Plain torch models, written as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Built = tuple[nn.Module, Callable[[], torch.Tensor]]


class ConvNet(nn.Module):
    """A small convolutional classifier with batch norm and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.norm(self.stem(image)))
        hidden = F.max_pool2d(hidden, 2)
        hidden = hidden + F.relu(self.block(hidden))
        pooled = hidden.mean(dim=(2, 3))
        return self.head(pooled)


def convnet() -> Built:
    model = ConvNet()
    image, target = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])

    def step() -> torch.Tensor:
        logits = model(image)
        return F.cross_entropy(logits, target)

    return model, step


class Recurrent(nn.Module):
    """A GRU written out by hand, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.gates = nn.Linear(16, 16)
        self.candidate = nn.Linear(16, 8)
        self.out = nn.Linear(8, 20)

    def advance(self, token: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        both = torch.cat([token, state], dim=-1)
        update, reset = torch.sigmoid(self.gates(both)).chunk(2, dim=-1)
        fresh = torch.tanh(self.candidate(torch.cat([token, reset * state], dim=-1)))
        return (1 - update) * state + update * fresh

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        embedded = self.embed(words)
        state = torch.zeros(words.shape[0], 8)
        logits = []
        for position in range(words.shape[1]):
            state = self.advance(embedded[:, position], state)
            logits.append(self.out(state))
        return torch.stack(logits, dim=1)


def recurrent() -> Built:
    model, words = Recurrent(), torch.randint(0, 20, (3, 6))

    def step() -> torch.Tensor:
        logits = model(words[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())

    return model, step


class Tagger(nn.Module):
    """A bidirectional LSTM with attention over its states."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.rnn = nn.LSTM(8, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.score = nn.Linear(16, 1)
        self.out = nn.Linear(16, 3)

    def pool(self, states: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.score(states).squeeze(-1), dim=-1)
        return torch.einsum("bt,btd->bd", weights, states)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(self.embed(words))
        return self.out(self.pool(states))


def tagger() -> Built:
    model, words, target = Tagger(), torch.randint(0, 20, (4, 6)), torch.tensor([0, 1, 2, 0])

    def step() -> torch.Tensor:
        return F.cross_entropy(model(words), target)

    return model, step


class Gan(nn.Module):
    """Generator and critic; the step sums both losses, the critic's on a copy without history."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 6), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def fake(self, noise: torch.Tensor) -> torch.Tensor:
        return self.generator(noise)


def gan() -> Built:
    model, noise, real = Gan(), torch.randn(8, 4), torch.randn(8, 6)

    def step() -> torch.Tensor:
        fake = model.fake(noise)
        fooled = F.softplus(-model.critic(fake)).mean()
        seen = F.softplus(-model.critic(real)).mean() + F.softplus(model.critic(fake.detach())).mean()
        return fooled + seen

    return model, step


class Vae(nn.Module):
    """A variational auto-encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(12, 16)
        self.mean, self.log_variance = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 12))

    def sample(self, mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
        scale = torch.exp(0.5 * log_variance)
        return mean + scale * torch.randn_like(scale)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.encode(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = self.sample(mean, log_variance)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(dim=-1).mean()
        return self.decode(code), divergence


def vae() -> Built:
    model, x = Vae(), torch.randn(8, 12)

    def step() -> torch.Tensor:
        restored, divergence = model(x)
        return F.mse_loss(restored, x) + 0.1 * divergence

    return model, step


class GraphNet(nn.Module):
    """Messages along edges, summed where they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(16, 8), nn.Linear(16, 8)
        self.read = nn.Linear(8, 1)

    def spread(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        sent = torch.relu(self.message(torch.cat([nodes[source], nodes[target]], dim=-1)))
        arrived = torch.zeros_like(nodes).index_add(0, target, sent)
        return nodes + torch.tanh(self.update(torch.cat([nodes, arrived], dim=-1)))

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            nodes = self.spread(nodes, edges)
        return self.read(nodes.mean(dim=0))


def graph_net() -> Built:
    model, nodes = GraphNet(), torch.randn(6, 8)
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])

    def step() -> torch.Tensor:
        predicted = model(nodes, edges)
        return (predicted - 1.0).pow(2).sum()

    return model, step


class GraphAttention(nn.Module):
    """Attention over the edges of a graph, written with scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.attend, self.read = nn.Linear(8, 8), nn.Linear(16, 1), nn.Linear(8, 2)

    def weights(self, nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raw = F.leaky_relu(self.attend(torch.cat([nodes[source], nodes[target]], dim=-1)).squeeze(-1), 0.2).exp()
        total = torch.zeros(nodes.shape[0]).scatter_add(0, target, raw)
        return raw / total[target]

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        hidden = self.project(nodes)
        share = self.weights(hidden, source, target).unsqueeze(-1)
        mixed = torch.zeros_like(hidden)
        mixed.index_add_(0, target, share * hidden[source])
        return self.read(F.elu(mixed))


def graph_attention() -> Built:
    model, nodes = GraphAttention(), torch.randn(6, 8)
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])

    def step() -> torch.Tensor:
        logits = model(nodes, edges)
        return F.cross_entropy(logits, torch.tensor([0, 1, 0, 1, 0, 1]))

    return model, step


class UNet(nn.Module):
    """Down, up, and a way across."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 1, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        fine = F.silu(self.norm(self.first(image)))
        coarse = F.silu(self.down(F.avg_pool2d(fine, 2)))
        back = self.up(coarse)
        return self.last(torch.cat([fine, back], dim=1))


def unet() -> Built:
    model, image = UNet(), torch.randn(2, 1, 8, 8)
    mask = (image > 0).float()

    def step() -> torch.Tensor:
        logits = model(image)
        overlap = (torch.sigmoid(logits) * mask).sum()
        dice = 1 - 2 * overlap / (torch.sigmoid(logits).sum() + mask.sum())
        return F.binary_cross_entropy_with_logits(logits, mask) + dice

    return model, step


class Denoiser(nn.Module):
    """Guesses the noise in a noisy point; time comes in as sines."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.into = nn.Linear(8, 16), nn.Linear(4, 16)
        self.middle, self.out = nn.Linear(16, 16), nn.Linear(16, 4)

    def clock(self, moment: torch.Tensor) -> torch.Tensor:
        speeds = torch.exp(torch.arange(4) * -(math.log(100.0) / 4))
        angles = moment[:, None] * speeds
        return self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))

    def forward(self, noisy: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        hidden = F.silu(self.into(noisy) + self.clock(moment))
        hidden = hidden + F.silu(self.middle(hidden))
        return self.out(hidden)


def diffusion() -> Built:
    model, clean = Denoiser(), torch.randn(8, 4)
    kept = torch.linspace(0.99, 0.1, 10)

    def step() -> torch.Tensor:
        moment = torch.randint(0, 10, (8,))
        noise = torch.randn_like(clean)
        share = kept[moment][:, None]
        noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
        guess = model(noisy, moment.float())
        return F.mse_loss(guess, noise)

    return model, step


class Attention(nn.Module):
    """Self-attention by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, 2, 4).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.split(part) for part in self.qkv(x).chunk(3, dim=-1))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(4)).softmax(dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(x.shape)
        return self.out(mixed)


class TinyGpt(nn.Module):
    """A language model of two blocks, its head tied to its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(20, 8), nn.Parameter(torch.randn(6, 8) * 0.1)
        self.blocks = nn.ModuleList([Attention() for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(8) for _ in range(2)])

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words) + self.position[: words.shape[1]]
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + block(norm(x))
        return x @ self.embed.weight.T


def tiny_gpt() -> Built:
    model, words = TinyGpt(), torch.randint(0, 20, (2, 6))

    def step() -> torch.Tensor:
        logits = model(words)
        log_probabilities = F.log_softmax(logits, dim=-1)
        picked = log_probabilities.gather(-1, words.unsqueeze(-1)).squeeze(-1)
        return -picked.mean()

    return model, step


class Siamese(nn.Module):
    """One encoder for two views, compared by their angle."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 4))
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def similarity(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        left, right = F.normalize(left, dim=-1), F.normalize(right, dim=-1)
        return left @ right.T * self.temperature.exp()


def siamese() -> Built:
    model, view = Siamese(), torch.randn(5, 6)

    def step() -> torch.Tensor:
        other = view + 0.1 * torch.randn_like(view)
        scores = model.similarity(model.encoder(view), model.encoder(other))
        return F.cross_entropy(scores, torch.arange(5))

    return model, step


class Mixture(nn.Module):
    """Experts, of which a softmax gate takes the best two."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 3)
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares, picks = self.gate(x).softmax(dim=-1).topk(2, dim=-1)
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slots = torch.where(picks == number)
            mixed = mixed.index_add(0, rows, shares[rows, slots, None] * expert(x[rows]))
        return mixed


def mixture() -> Built:
    model, x = Mixture(), torch.randn(12, 6)

    def step() -> torch.Tensor:
        return F.smooth_l1_loss(model(x), x.flip(0))

    return model, step


class ActorCritic(nn.Module):
    """A policy and a value on a shared trunk; the advantage scales without being learned from."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.policy, self.value = nn.Linear(5, 16), nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.trunk(seen))
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def actor_critic() -> Built:
    model, seen, rewards = ActorCritic(), torch.randn(10, 5), torch.randn(10)
    actions = torch.randint(0, 3, (10,))

    def step() -> torch.Tensor:
        logits, value = model(seen)
        chosen = torch.distributions.Categorical(logits=logits)
        advantage = (rewards - value).detach()
        gained = -(chosen.log_prob(actions) * advantage).mean()
        missed = (rewards - value).pow(2).mean()
        return gained + 0.5 * missed - 0.01 * chosen.entropy().mean()

    return model, step


class Forecaster(nn.Module):
    """Causal convolutions over a series, quantiles out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(4, 4, 2, dilation=2**depth) for depth in range(3)])
        self.into, self.out = nn.Conv1d(1, 4, 1), nn.Linear(4, 3)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        hidden = self.into(series[:, None])
        for depth, layer in enumerate(self.layers):
            padded = F.pad(hidden, (2**depth, 0))
            hidden = hidden + torch.tanh(layer(padded))
        return self.out(hidden[..., -1])


def forecaster() -> Built:
    model, series, target = Forecaster(), torch.randn(6, 12), torch.randn(6, 1)
    levels = torch.tensor([0.1, 0.5, 0.9])

    def step() -> torch.Tensor:
        missed = target - model(series)
        return torch.maximum(levels * missed, (levels - 1) * missed).mean()

    return model, step


class StateSpace(nn.Module):
    """A diagonal linear state, scanned over time and gated."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 16), nn.Linear(8, 4)
        self.decay, self.rates = nn.Parameter(torch.zeros(8)), nn.Linear(8, 8)

    def scan(self, x: torch.Tensor) -> torch.Tensor:
        state, states = torch.zeros_like(x[:, 0]), []
        step = F.softplus(self.rates(x))
        keep = torch.exp(-step * self.decay.exp())
        for moment in range(x.shape[1]):
            state = keep[:, moment] * state + step[:, moment] * x[:, moment]
            states.append(state)
        return torch.stack(states, dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, gate = self.into(x).chunk(2, dim=-1)
        return self.out(self.scan(hidden) * F.silu(gate))


def state_space() -> Built:
    model, x = StateSpace(), torch.randn(3, 7, 4)

    def step() -> torch.Tensor:
        return (model(x[:, :-1]) - x[:, 1:]).pow(2).mean()

    return model, step


BUILDERS: dict[str, Callable[[], Built]] = {
    build.__name__: build
    for build in (
        convnet, recurrent, tagger, gan, vae, graph_net, graph_attention, unet, diffusion, tiny_gpt, siamese, mixture,
        actor_critic, forecaster, state_space,
    )
}  # fmt: skip
