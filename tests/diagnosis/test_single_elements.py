"""What normalises a single element hands on zeros, or the noise of rounding: by the program, or by the batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.types import Finding

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
SEQUENCES = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
Weigh = Callable[[torch.Tensor], torch.Tensor]


class Routed(nn.Module):
    """Experts, the best ``k`` of which are weighed by what ``weigh`` makes of their scores."""

    def __init__(self, weigh: Weigh, k: int = 1, balance: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.k, self.weigh, self.balance = nn.Linear(4, 3), k, weigh, balance
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.gate(x).softmax(-1)
        best, chosen = scores.topk(self.k, -1)
        weights, out = self.weigh(best), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = out + (weights * (chosen == number)).sum(-1, keepdim=True) * expert(x)
        loss = (out - 1).pow(2).mean()
        return loss + self.balance * scores.mean(0).pow(2).sum() if self.balance else loss


class Pooled(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.score, self.out, self.dim = nn.Linear(4, 1), nn.Linear(4, 2), dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = F.softmax(self.score(x).tanh(), dim=self.dim)  # pooled
        out: torch.Tensor = self.out((weights * x).sum(1)).pow(2).mean()
        return out


def _by_the_sum(best: torch.Tensor) -> torch.Tensor:
    return best / best.sum(-1, keepdim=True)  # sum


def _by_the_sum_and_a_little(best: torch.Tensor) -> torch.Tensor:
    return best / (best.sum(-1, keepdim=True) + 1e-9)  # little


def _by_itself_in_place(best: torch.Tensor) -> torch.Tensor:
    best = best.clone()
    best /= best.sum(-1, keepdim=True).clamp(min=1e-6)  # in place
    return best


def _by_softmax(best: torch.Tensor) -> torch.Tensor:
    return best.softmax(-1)  # softmax


def _by_its_norm(best: torch.Tensor) -> torch.Tensor:
    return F.normalize(best, dim=-1)  # norm


def _less_its_logsumexp(best: torch.Tensor) -> torch.Tensor:
    return (best - best.logsumexp(-1, keepdim=True)).exp()  # logsumexp


WEIGHED = {
    "sum": _by_the_sum, "little": _by_the_sum_and_a_little, "in place": _by_itself_in_place, "softmax": _by_softmax,
    "norm": _by_its_norm, "logsumexp": _less_its_logsumexp,
}  # fmt: skip


def _found(model: nn.Module, x: torch.Tensor, **options: object) -> list[Finding]:
    report = gradkit.diagnose(lambda: model(x), model=model, **options)  # type: ignore[arg-type]
    return list(report.findings)


def _line(word: str) -> int:
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(at for at, line in enumerate(text, 1) if line.endswith(f"  # {word}"))


def _told(found: list[Finding]) -> list[tuple[str, str, int | None]]:
    return [(one.cause, one.variant, one.location and one.location.line) for one in found]


@pytest.mark.parametrize("way", WEIGHED)
def test_the_weight_of_one_expert_divided_by_itself_is_named_where_it_is_divided(way: str) -> None:
    found = _found(Routed(WEIGHED[way]), X, should_train=["gate.*"])
    assert _told(found) == [("zero_gradient", "alone", _line(way))]
    assert set(found[0].parameters) == {"gate.weight", "gate.bias"}


@pytest.mark.parametrize("way", WEIGHED)
def test_the_weights_of_two_experts_are_left_alone(way: str) -> None:
    assert not _found(Routed(WEIGHED[way], k=2), X, should_train=["gate.*"])


@pytest.mark.parametrize("balance", [1.0, 1e-8])
def test_a_gate_that_learns_by_another_way_is_left_alone_however_little(balance: float) -> None:
    assert not _found(Routed(_by_the_sum, balance=balance), X)


def test_a_softmax_over_the_one_output_of_a_layer_is_the_programs_doing() -> None:
    found = _found(Pooled(-1), SEQUENCES)
    assert _told(found) == [("zero_gradient", "alone", _line("pooled"))]


def test_a_softmax_over_a_sequence_of_one_is_the_batchs_matter() -> None:
    report = gradkit.diagnose(lambda: model(SEQUENCES[:, :1]), model=(model := Pooled(1)))
    assert not report.findings
    assert [one.location.line for one in report.harmless] == [_line("pooled")]


def test_a_softmax_over_a_batch_of_one_is_the_batchs_matter() -> None:
    assert not _found(Pooled(0), SEQUENCES[:1])


def test_an_attention_over_one_key_of_the_batch_is_the_batchs_matter() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleDict({name: nn.Linear(4, 4) for name in "qkv"})

    def step() -> torch.Tensor:
        q, k, v = (layers[name](x) for name, x in zip("qkv", (SEQUENCES, *[SEQUENCES[:, :1]] * 2), strict=True))
        return ((q @ k.transpose(1, 2)).softmax(-1) @ v).pow(2).mean()

    assert not gradkit.diagnose(step, model=layers).findings


def test_a_layer_norm_of_one_feature_is_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 1), nn.LayerNorm(1))

    def step() -> torch.Tensor:
        return (model(X) - X[:, :1]).pow(2).mean()  # layer norm

    assert _told(list(gradkit.diagnose(step, model=model).findings))[:1] == [
        ("zero_gradient", "alone", _line("layer norm"))
    ]


def test_a_softmax_over_one_channel_is_named() -> None:
    torch.manual_seed(0)
    body, mask = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 1, 1)
    model = nn.Sequential(body, mask)

    def step() -> torch.Tensor:
        features = body(SEQUENCES[:, None])
        return (mask(features).softmax(1) * features).pow(2).mean()  # channel

    assert _told(list(gradkit.diagnose(step, model=model).findings)) == [("zero_gradient", "alone", _line("channel"))]


def test_biases_before_a_normalisation_and_those_of_keys_are_left_alone() -> None:
    torch.manual_seed(0)
    attend, norm = nn.MultiheadAttention(4, 2, batch_first=True), nn.BatchNorm1d(4)
    model = nn.ModuleList([nn.Linear(4, 4), norm, attend])

    def step() -> torch.Tensor:
        hidden = norm(model[0](SEQUENCES).flatten(0, 1)).view_as(SEQUENCES)
        return (attend(hidden, hidden, hidden)[0] - 1).pow(2).mean()

    assert not gradkit.diagnose(step, model=model).findings


def test_a_gradient_that_is_small_and_real_is_left_alone() -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
    assert not gradkit.diagnose(
        lambda: (model[0](X) + 1e-9 * model[1](X).tanh() - 1).pow(2).mean(), model=model
    ).findings
