"""The parameters counted by module, as a person checks what is frozen, what trains and what is reached."""

from __future__ import annotations

import torch
from torch import nn

import gradkit
from gradkit.report import breakdown
from gradkit.report.breakdown import Share
from gradkit.report.report import Report


class Memory(nn.Module):
    """A projection that trains between two frozen halves; the head shares its weight with the embedding."""

    def __init__(self, *, cut: bool) -> None:
        super().__init__()
        self.cut = cut
        self.embed, self.encoder = nn.Embedding(5, 4), nn.Sequential(nn.Linear(4, 3), nn.Dropout())
        self.proj, self.head = nn.Linear(3, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.requires_grad_(False).proj.requires_grad_(True)

    def forward(self) -> torch.Tensor:
        seen = self.proj(self.encoder(self.embed(torch.tensor([1, 2]))))
        return self.head(seen.detach() if self.cut else seen).sum()


def report_on(model: nn.Module, should_train: list[str] | None = None) -> Report:
    return gradkit.diagnose(model.forward, model=model, should_train=should_train)


def counted(report: Report, depth: int = 1) -> dict[str, Share]:
    return {share.path: share for share in breakdown.shares(report.parameters, report.picture.modules, depth)}


def counts(share: Share) -> tuple[int, ...]:
    return tuple(getattr(share, name) for name in breakdown.COUNTS)


def test_each_module_says_how_much_it_holds_should_train_may_train_and_is_reached() -> None:
    found = counted(report_on(Memory(cut=False)))
    assert {path: counts(share) for path, share in found.items()} == {
        "": (51, 16, 16, 16),
        "embed": (20, 0, 0, 0),
        "encoder": (15, 0, 0, 0),
        "proj": (16, 16, 16, 16),
    }
    assert found["proj"].remarks == ("good",)
    assert found["encoder"].remarks == ()


def test_a_module_that_should_train_and_is_not_reached_is_warned_of() -> None:
    report = report_on(Memory(cut=True))
    assert counted(report)["proj"].remarks == ("starved",)
    assert "proj 16 16 16 0 train ✗ no gradient" in " ".join(report.breakdown().split())


def test_a_module_that_is_reached_in_part_is_told_from_one_that_is_not_reached() -> None:
    model = nn.ModuleDict({"block": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 1)])})
    block = model["block"]
    report = gradkit.diagnose(lambda: block[1](block[0](torch.ones(1, 2)).detach()).sum(), model=model)
    found = counted(report)
    assert (found["block"].remarks, found["block.0"].remarks) == (("partly",), ("starved",))
    assert found["block"].starved == 6


def test_a_frozen_module_with_something_that_may_train_is_warned_of() -> None:
    model = Memory(cut=False)
    model.encoder[0].bias.requires_grad_(True)
    report = report_on(model, ["proj.*"])
    assert counted(report)["encoder"].remarks == ("loose",)
    assert "requires_grad: 3 (should be 0)" in report.breakdown(language="en")
    assert "应为 0" in report.breakdown(language="zh")


def test_what_should_train_and_is_frozen_is_warned_of() -> None:
    report = report_on(Memory(cut=False).requires_grad_(False), ["proj.*"])
    assert counts(counted(report)["proj"]) == (16, 16, 0, 0)
    assert counted(report)["proj"].remarks == ("starved",)


def test_a_tensor_with_two_names_counts_once() -> None:
    model = Memory(cut=False)
    report = report_on(model)
    assert counted(report)[""].numel == sum(parameter.numel() for parameter in model.parameters())
    assert [row.same_as for row in report.parameters if row.name == "head.weight"] == ["embed.weight"]


def test_a_tensor_that_should_train_under_its_second_name_should_train() -> None:
    report = report_on(Memory(cut=False).requires_grad_(True), ["head.*"])
    assert counts(counted(report)["embed"]) == (20, 20, 20, 20)


def test_it_begins_at_the_innermost_module_that_holds_everything_and_goes_down_on_request() -> None:
    model = nn.ModuleDict({"base": nn.ModuleDict({"model": Memory(cut=False)})})
    report = gradkit.diagnose(model["base"]["model"].forward, model=model)
    paths = list(counted(report, 2))
    assert paths[:4] == ["base.model", "base.model.embed", "base.model.embed.weight", "base.model.encoder"]
    assert list(counted(report))[1:] == ["base.model.embed", "base.model.encoder", "base.model.proj"]


def test_the_parts_add_up_to_the_whole() -> None:
    model = Memory(cut=False)
    model.scale = nn.Parameter(torch.ones(7))
    whole, *parts = counted(report_on(model)).values()
    assert counts(whole) == tuple(map(sum, zip(*map(counts, parts), strict=True)))


def test_the_mode_of_a_module_is_that_of_all_in_it_also_of_what_has_no_parameters() -> None:
    model = Memory(cut=False).eval()
    model.encoder[1].train()
    found = counted(report_on(model))
    assert (found["proj"].mode, found["encoder"].mode, found[""].mode) == ("eval", "mixed", "mixed")


def test_a_model_without_parameters_has_nothing_to_count() -> None:
    assert breakdown.shares(()) == ()
    assert len(breakdown.write(()).splitlines()) == 2


def test_thousands_of_parameters_are_counted_at_once() -> None:
    row = report_on(Memory(cut=False)).parameters[0]
    rows = [
        gradkit.core.records.Parameter(f"layers.{at // 10}.experts.{at % 10}.weight", *list(vars(row).values())[1:])
        for at in range(20_000)
    ]
    assert len(breakdown.shares(rows, depth=3)) == 1 + 2000 * 2 + 20_000
