"""An error and a silent fault in one program: both are named, the error first; what is right or meant is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.core.i18n import words
from gradkit.types import Report

X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
Code = Callable[[Any, Any], Any]


class Miscounting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


class Raising(Miscounting):
    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.factor


class Net(nn.Module):
    def __init__(self, code: Code) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.middle, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.offset = nn.Parameter(torch.zeros(5))
        self.code, self.memory = code, torch.zeros(6, 5)


def detached(model: Any, x: Any) -> Any:
    return model.encoder(x).detach()


def under_no_grad(model: Any, x: Any) -> Any:
    with torch.no_grad():
        return model.encoder(x)


def through_numpy(model: Any, x: Any) -> Any:
    return torch.from_numpy(model.encoder(x).detach().numpy())


def whole(model: Any, x: Any) -> Any:
    return model.encoder(x)


def overwritten(model: Any, h: Any) -> Any:
    h = h.sigmoid()
    h += 1
    return h


def miscounted(model: Any, h: Any) -> Any:
    applied: Any = Miscounting.apply
    return applied(h, 2.0)


def raised_in_a_function(model: Any, h: Any) -> Any:
    applied: Any = Raising.apply
    return applied(h, 2.0)


def raised_in_a_hook(model: Any, h: Any) -> Any:
    h.register_hook(lambda grad: grad.sum(0))
    return h


def written_leaf(model: Any, h: Any) -> Any:
    model.offset += 1
    return h


def unused_input(model: Any, h: Any) -> Any:
    points = torch.ones(6, 1, requires_grad=True)
    copied = points * 1
    slope = torch.autograd.grad((h * points).sum(), copied, create_graph=True)[0]
    return h + slope


def inference_tensor(model: Any, h: Any) -> Any:
    with torch.inference_mode():
        mask = torch.ones(6, 5)
    return h * mask


def as_it_is(model: Any, h: Any) -> Any:
    return h


ERRORS = [
    overwritten, miscounted, raised_in_a_function, raised_in_a_hook, written_leaf, unused_input, inference_tensor,
]  # fmt: skip


def loss_of(model: Any, fault: Code) -> Any:
    h = model.middle(model.code(model, X)).tanh() + model.offset
    return F.cross_entropy(model.head(fault(model, h)), Y)


def diagnosed(code: Code, fault: Code, *, own: bool = False, **options: Any) -> Report:
    model = Net(code)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> Any:
        loss = loss_of(model, fault)
        if own:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    return gradkit.diagnose(step, model=model, **options)


def places(report: Report) -> list[str]:
    return [one.location.function.split(".")[0] if one.location else "" for one in report.findings]


ENCODER = ("encoder.weight", "encoder.bias")


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("fault", ERRORS)
def test_a_cut_behind_an_error_is_named_after_it(fault: Code, own: bool) -> None:
    report = diagnosed(detached, fault, own=own)
    assert [one.cause for one in report.findings][1:] == ["detach"]
    assert places(report)[1] == "detached"
    assert report.findings[1].parameters == ENCODER


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("fault", ERRORS)
def test_an_error_alone_is_told_alone(fault: Code, own: bool) -> None:
    assert len(diagnosed(whole, fault, own=own).findings) == 1


@pytest.mark.parametrize(
    ("code", "cause"), [(under_no_grad, "no_grad_block"), (through_numpy, "numpy_roundtrip"), (detached, "detach")]
)
def test_each_kind_of_cut_is_named_behind_an_error(code: Code, cause: str) -> None:
    report = diagnosed(code, miscounted, own=True)
    assert [one.cause for one in report.findings] == ["custom_function", cause]


def test_behind_an_error_that_a_rerun_mends_the_cut_is_proven_by_a_backward() -> None:
    second = diagnosed(detached, overwritten, own=True).findings[1]
    assert (second.proof, second.revived) == ("proven", ENCODER)


def test_behind_an_error_that_no_rerun_mends_the_cut_is_likely_for_want_of_a_backward() -> None:
    second = diagnosed(detached, miscounted).findings[1]
    assert (second.proof, second.doubt, second.revived) == ("likely", "behind", ())


def test_both_changes_are_tried_together() -> None:
    first, second = diagnosed(detached, overwritten).findings
    assert first.tried is not None
    assert second.tried is not None
    assert (first.tried.outcome, second.tried.outcome, second.tried.why) == ("cures", "cures", "together")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_says_that_the_second_lies_behind_the_error(language: str) -> None:
    text = diagnosed(detached, miscounted).text(language)
    assert text.count(words("report.behind_error", language)) == 1


def test_a_step_that_may_not_be_run_again_tells_the_error_alone() -> None:
    assert len(diagnosed(detached, overwritten, replay=False).findings) == 1


@pytest.mark.parametrize("fault", [overwritten, written_leaf])
def test_what_is_cut_off_hangs_on_the_plate_of_its_cut(fault: Code) -> None:
    picture = diagnosed(detached, fault).picture
    plates = {one.number: one.finding for one in picture.nodes if one.kind == "cut"}
    above = {edge.target: edge.source for edge in picture.edges if edge.status == "cut"}
    fed = {one.number: one for one in picture.nodes}
    assert set(plates.values()) == {1}
    assert all(fed[above[number]].module == "encoder" for number in plates)


# -- what is set up ---------------------------------------------------------------------------------------------------


def test_a_frozen_layer_behind_an_error_is_named() -> None:
    model = Net(whole)
    model.middle.requires_grad_(False)
    report = gradkit.diagnose(lambda: loss_of(model, miscounted), model=model, should_train=["*"])
    assert [one.cause for one in report.findings] == ["custom_function", "frozen_all"]
    assert report.findings[1].parameters == ("middle.weight", "middle.bias")


def test_a_layer_that_an_optimizer_lacks_is_named_behind_an_error() -> None:
    model = Net(whole)
    optimizer = torch.optim.SGD([*model.encoder.parameters(), *model.middle.parameters()], lr=0.1)
    report = gradkit.diagnose(lambda: loss_of(model, overwritten), model=model, optimizer=optimizer)
    assert [one.cause for one in report.findings] == ["inplace_modified", "optimizer_mismatch"]
    assert set(report.findings[1].parameters) == {"head.weight", "head.bias", "offset"}


def test_a_layer_that_nothing_uses_is_named_behind_an_error() -> None:
    model = Net(whole)
    model.spare = nn.Linear(2, 2)
    report = gradkit.diagnose(lambda: loss_of(model, miscounted), model=model)
    assert [one.cause for one in report.findings] == ["custom_function", "trainable_unused"]


def test_a_term_without_a_gradient_is_named_behind_an_error() -> None:
    model = Net(whole)

    def step() -> Any:
        size = model.middle(model.encoder(X)).pow(2).mean().item()
        return loss_of(model, overwritten) + 0.1 * size

    report = gradkit.diagnose(step, model=model)
    assert [one.cause for one in report.findings] == ["inplace_modified", "python_roundtrip"]


# -- what is meant ----------------------------------------------------------------------------------------------------


def test_a_target_that_is_detached_is_no_second_fault() -> None:
    model = Net(whole)

    def step() -> Any:
        h = overwritten(model, model.encoder(X))
        target = model.encoder(X + 1).detach()
        loss = F.mse_loss(model.head(model.middle(h + model.offset)), target[:, :3])
        loss.backward()
        return loss

    assert [one.cause for one in gradkit.diagnose(step, model=model).findings] == ["inplace_modified"]


def test_a_frozen_backbone_is_no_second_fault() -> None:
    model = Net(under_no_grad)
    model.encoder.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    report = gradkit.diagnose(lambda: loss_of(model, miscounted), model=model, optimizer=optimizer)
    assert [one.cause for one in report.findings] == ["custom_function"]


def gan(fault: Code) -> tuple[nn.ModuleDict, Callable[[], Any]]:
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 1))
    model = nn.ModuleDict({"generator": nn.Linear(4, 4), "critic": critic})
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    of_generator = torch.optim.SGD(model["generator"].parameters(), lr=0.1)

    def step() -> Any:
        fake = model["generator"](X)
        of_critic.zero_grad()
        judged = critic[2](fault(model, critic[1](critic[0](fake.detach()))))
        F.softplus(judged).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        loss = F.softplus(-critic(fake)).mean()
        loss.backward()
        of_generator.step()
        return loss

    return model, step


@pytest.mark.parametrize("fault", [miscounted, raised_in_a_function, raised_in_a_hook])
def test_what_learns_by_a_loss_after_the_error_is_no_second_fault(fault: Code) -> None:
    model, step = gan(fault)
    assert len(gradkit.diagnose(step, model=model).findings) == 1


def test_what_was_computed_before_the_step_is_no_second_fault() -> None:
    model = Net(whole)
    features = model.encoder(X).tanh()
    features.sum().backward()
    report = gradkit.diagnose(
        lambda: F.cross_entropy(model.head(model.middle(features) + model.offset), Y), model=model
    )
    assert [one.cause for one in report.findings] == ["double_backward"]


def test_a_step_that_cannot_go_on_tells_the_error_alone() -> None:
    model = Net(detached)

    def step() -> float:
        loss_of(model, miscounted).backward()
        assert model.head.weight.grad is not None
        return float(model.head.weight.grad.norm())

    assert [one.cause for one in gradkit.diagnose(step, model=model).findings] == ["custom_function"]


def test_a_teacher_that_no_optimizer_holds_is_left_aside_though_the_step_ends_in_the_optimizers() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"teacher": nn.Linear(4, 3), "student": nn.Linear(4, 3)})
    optimizer = torch.optim.SGD(model["student"].parameters(), lr=0.1)

    def step() -> Any:
        with torch.no_grad():
            target = model["teacher"](X)
        optimizer.zero_grad()
        loss = F.mse_loss(model["student"](X), target)
        loss.backward()
        optimizer.step()
        return loss

    assert gradkit.diagnose(step, model=model, optimizer=optimizer).healthy


@pytest.mark.parametrize("fault", ERRORS)
def test_the_rerun_past_an_error_leaves_no_trace(fault: Code) -> None:
    model = Net(detached)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradkit.diagnose(lambda: loss_of(model, fault), model=model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())


def test_a_gradient_scaler_goes_on_where_it_refused() -> None:
    model = Net(detached)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step() -> Any:
        loss = loss_of(model, as_it_is)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return loss

    report = gradkit.diagnose(step, model=model, optimizer=optimizer)
    assert [one.cause for one in report.findings] == ["amp_misuse", "detach"]
