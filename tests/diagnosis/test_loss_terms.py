"""A loss is a sum: each of its terms is listed, and one that should teach something and does not is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.types import Report

X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
Step = Callable[[nn.Module], torch.Tensor]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def report_of(loss: Step) -> Report:
    model = net()
    return gradkit.diagnose(lambda: loss(model), model=model)


def named(report: Report) -> dict[str, str]:
    return {one.name: one.state for one in report.terms}


def first_line(report: Report) -> str:
    spot = report.findings[0].location
    assert spot is not None
    return spot.text.strip()


# -- terms that are cut off --------------------------------------------------------------------------------------------


def penalty_of_a_detached_output(model: nn.Module) -> torch.Tensor:
    logits = model(X)
    ce = F.cross_entropy(logits, Y)
    size = logits.detach().square().mean()
    return ce + 0.1 * size


def entropy_as_a_number(model: nn.Module) -> torch.Tensor:
    logits = model(X)
    ce = F.cross_entropy(logits, Y)
    p = logits.softmax(-1)
    entropy = -(p * p.log()).sum(-1).mean().item()
    return ce - 0.1 * entropy


def overlap_of_thresholded_scores(model: nn.Module) -> torch.Tensor:
    scores = model(X).sigmoid()
    target = F.one_hot(Y, 3).float()
    bce = F.binary_cross_entropy(scores, target)
    hard = (scores > 0.5).long()
    overlap = (hard * target).sum() / target.sum()
    return bce + (1 - overlap)


def consistency_without_recording(model: nn.Module) -> torch.Tensor:
    ce = F.cross_entropy(model(X), Y)
    with torch.no_grad():
        drift = (model(X) - model(X + 0.1)).square().mean()
    return ce + drift


def norms_copied_into_a_tensor(model: nn.Module) -> torch.Tensor:
    ce = F.cross_entropy(model(X), Y)
    decay = torch.tensor([one.norm() for one in model.parameters()]).sum()
    return ce + 0.01 * decay


@pytest.mark.parametrize(
    ("loss", "cause", "line"),
    [
        (penalty_of_a_detached_output, "detach", "size = logits.detach().square().mean()"),
        (entropy_as_a_number, "python_roundtrip", "entropy = -(p * p.log()).sum(-1).mean().item()"),
        (overlap_of_thresholded_scores, "non_differentiable_op", "hard = (scores > 0.5).long()"),
        (consistency_without_recording, "no_grad_block", "with torch.no_grad():"),
        (
            norms_copied_into_a_tensor,
            "rewrap_tensor",
            "decay = torch.tensor([one.norm() for one in model.parameters()]).sum()",
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_term_that_is_cut_off_is_found_at_its_cut_though_all_parameters_learn(
    loss: Step, cause: str, line: str
) -> None:
    report = report_of(loss)
    assert [one.cause for one in report.findings] == [cause]
    assert first_line(report) == line
    assert all(row.grad_norm for row in report.parameters)


def test_to_undo_the_cut_of_a_term_is_proven_to_give_the_term_its_gradient() -> None:
    report = report_of(penalty_of_a_detached_output)
    assert report.findings[0].proof == "proven"
    assert set(report.findings[0].revived) == {row.name for row in report.parameters}


def test_the_change_for_a_term_is_offered_because_the_term_gains_by_it() -> None:
    tried = report_of(penalty_of_a_detached_output).findings[0].tried
    assert tried is not None
    assert tried.outcome == "cures"


def constant_criterion(model: nn.Module) -> torch.Tensor:
    ce = F.cross_entropy(model(X), Y)
    smooth = F.mse_loss(X[1:], X[:-1])
    return ce + smooth


def test_a_stop_on_the_way_into_a_dead_term_is_not_accused_of_what_another_term_teaches() -> None:
    torch.manual_seed(0)
    maker, critic = nn.Linear(4, 3), nn.Linear(3, 1)

    def loss() -> torch.Tensor:
        fake = maker(X)
        fooled = F.softplus(-critic(fake)).mean()
        seen = F.softplus(critic(fake.detach())).mean()
        return fooled + torch.tensor(seen.item())

    report = gradkit.diagnose(loss, model=nn.ModuleList([maker, critic]))
    assert [(one.cause, one.parameters) for one in report.findings] == [("python_roundtrip", ("1.weight", "1.bias"))]


def test_a_rightful_stop_in_a_term_that_other_cuts_starve_is_not_accused() -> None:
    actor, critic = nn.Linear(4, 3), nn.Linear(4, 1)

    def loss() -> torch.Tensor:
        values = critic(X).squeeze(-1)
        returns = torch.ones_like(values)
        chosen = torch.tensor(actor(X).log_softmax(-1)[:, 0].tolist())
        return F.mse_loss(values, returns) - (chosen * (returns - values.detach())).mean()

    report = gradkit.diagnose(loss, model=nn.ModuleList([actor, critic]))
    assert [(one.cause, one.parameters) for one in report.findings] == [("python_roundtrip", ("0.weight", "0.bias"))]


def test_a_criterion_of_data_alone_is_a_constant_term() -> None:
    report = report_of(constant_criterion)
    assert [(one.cause, one.variant) for one in report.findings] == [("constant_loss", "term")]
    assert first_line(report) == "smooth = F.mse_loss(X[1:], X[:-1])"


def balance_of_choices(model: nn.Module) -> torch.Tensor:
    p = model(X).softmax(-1)
    best, chosen = p.topk(1, dim=-1)
    routed = (best * X[:, chosen[:, 0]].mean(-1, keepdim=True)).square().mean()
    load = F.one_hot(chosen[:, 0], 3).float().mean(0)
    balance = (load * load).sum()
    return routed + balance


def test_of_a_term_made_of_choices_the_term_is_to_be_changed_and_not_the_choice() -> None:
    report = report_of(balance_of_choices)
    assert [one.variant for one in report.findings] == ["choices"]
    assert first_line(report) == "balance = (load * load).sum()"


# -- terms that are meant ----------------------------------------------------------------------------------------------


def straight_through(model: nn.Module) -> torch.Tensor:
    out = model(X)
    return (out + (out.round() - out).detach()).mean()


def value_of_another_term(model: nn.Module) -> torch.Tensor:
    ce = F.cross_entropy(model(X), Y)
    return ce + (1.0 - ce).detach()


def entropy_of_a_target(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        target = model(X + 0.1).softmax(-1)
    entropy = (target * target.log()).sum(-1).mean()
    cross = (target * model(X).log_softmax(-1)).sum(-1).mean()
    return entropy - cross


def sum_from_a_zero_tensor(model: nn.Module) -> torch.Tensor:
    loss = torch.zeros(())
    for rows in X.split(2):
        loss = loss + model(rows).square().mean()
    return loss


def baseline_that_is_detached(model: nn.Module) -> torch.Tensor:
    out = model(X)
    reward = X.sum(-1)
    advantage = reward - out[:, 0].detach()
    return -(advantage * out[:, 1]).mean() + (out[:, 0] - reward).square().mean()


def constant_of_a_likelihood(model: nn.Module) -> torch.Tensor:
    scale = torch.full((3,), 0.5)
    return (model(X).square() / scale).mean() + scale.log().sum()


def residual_inside_of_a_network(model: nn.Module) -> torch.Tensor:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.inner(x)
            return out + x[:, :3].detach()

    return Residual()(X).mean()


@pytest.mark.parametrize(
    "loss",
    [
        straight_through,
        value_of_another_term,
        entropy_of_a_target,
        sum_from_a_zero_tensor,
        baseline_that_is_detached,
        constant_of_a_likelihood,
        residual_inside_of_a_network,
    ],
)
def test_a_term_that_is_meant_to_hand_on_nothing_is_not_accused(loss: Step) -> None:
    assert report_of(loss).healthy


def test_a_term_of_weight_zero_is_listed_and_not_accused_in_one_step() -> None:
    report = report_of(lambda model: F.cross_entropy(model(X), Y) + min(1, 3 // 100) * model(X).square().mean())
    assert report.healthy
    assert [one.state for one in report.terms] == ["live", "weightless"]


def test_a_step_that_goes_backward_from_two_losses_lists_the_terms_of_both() -> None:
    model = net()

    def step() -> None:
        (model(X).mean() + model(X).square().mean()).backward()
        (model(X).abs().mean() + model(X).exp().mean()).backward()

    assert [one.loss for one in gradkit.diagnose(step, model=model).terms] == [0, 0, 1, 1]


# -- what is told of them ----------------------------------------------------------------------------------------------


def weighed_and_subtracted(model: nn.Module) -> torch.Tensor:
    out = model(X)
    first = out.square().mean()
    second = out.mean()
    return 0.5 * (first - 3 * second)


def test_the_values_of_the_terms_add_up_to_the_loss() -> None:
    model = net()
    report = gradkit.diagnose(lambda: weighed_and_subtracted(model), model=model)
    values = [one.value for one in report.terms if one.value is not None]
    assert len(values) == 2
    assert sum(values) == pytest.approx(weighed_and_subtracted(model).item(), rel=1e-4)


def test_what_a_number_adds_is_worked_out_though_python_has_made_another_of_it() -> None:
    torch.manual_seed(0)
    model = net()
    report = gradkit.diagnose(lambda: entropy_as_a_number(model), model=model)
    values = [one.value or 0.0 for one in report.terms]
    assert sum(values) == pytest.approx(entropy_as_a_number(model).item(), rel=1e-4)


def test_terms_are_called_by_their_variables_and_name_whom_they_reach() -> None:
    report = report_of(weighed_and_subtracted)
    assert named(report) == {"first": "live", "second": "live"}
    assert set(report.terms[0].parameters) == {row.name for row in report.parameters}


def test_terms_that_one_line_adds_in_a_loop_are_one_row() -> None:
    report = report_of(sum_from_a_zero_tensor)
    assert [(one.state, one.count) for one in report.terms] == [("constant", 1), ("live", 3)]


def test_a_loss_that_is_no_sum_has_no_terms() -> None:
    assert report_of(lambda model: F.cross_entropy(model(X), Y)).terms == ()


@pytest.mark.parametrize(("language", "title"), [("en", "The loss, term by term"), ("zh", "损失的各项")])
def test_the_terms_are_shown_as_text_and_as_html(language: str, title: str) -> None:
    report = report_of(penalty_of_a_detached_output)
    assert title in report.text(language)
    assert title in report.html(language, with_picture=False)


def test_the_terms_are_part_of_the_data_for_scripts() -> None:
    found = report_of(penalty_of_a_detached_output).data()["terms"]
    assert [(one["name"], one["state"], one["carries"]) for one in found] == [
        ("ce", "live", True),
        ("size", "cut", False),
    ]


def test_a_term_that_only_a_frozen_part_computes_is_nobodys_fault() -> None:
    frozen, learns, x, y = (
        nn.Linear(4, 3).requires_grad_(False),
        nn.Linear(4, 3),
        torch.randn(5, 4),
        torch.arange(5) % 3,
    )
    model = nn.ModuleList([frozen, learns])

    def step() -> torch.Tensor:
        beside = nn.functional.cross_entropy(frozen(x), y)
        return nn.functional.cross_entropy(learns(x) + frozen(x), y) + beside

    assert gradkit.diagnose(step, model=model).findings == ()


def test_a_term_whose_stop_is_a_finding_is_not_told_as_stopped_on_purpose() -> None:
    model = nn.ModuleDict({"encoder": nn.Linear(2, 2), "book": nn.Embedding(3, 2)})

    def step() -> torch.Tensor:
        found, code = model["encoder"](torch.ones(3, 2)), model["book"](torch.arange(3))
        commitment = (code.detach() - found.detach()).square().mean()
        return found.square().mean() + commitment

    report = gradkit.diagnose(step, model=model)
    assert [term.state for term in report.terms] == ["live", "cut"]
    assert report.terms[1].parameters == ("book.weight",)
