"""``report.graph(view="torchviz")``: the graph as torchviz draws it, though nothing of the run is alive any more."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.errors import GradkitError
from gradkit.report.picture import style, torchviz_view
from gradkit.report.picture.torchviz_kept import Kept
from gradkit.report.picture.torchviz_view import dot
from gradkit.tracing.autograd_graph import AutogradNode


def pair() -> nn.ModuleDict:
    return nn.ModuleDict({"inner": nn.Linear(3, 4), "outer": nn.Linear(4, 1)})


def torn(model: nn.ModuleDict) -> Callable[[], torch.Tensor]:
    return lambda: model["outer"](model["inner"](torch.ones(5, 3)).relu().detach()).sum()


def labels(drawing: object) -> list[str]:
    """What the boxes say, in the order in which they are drawn."""
    found = re.findall(r"^\t\w+ \[label=(?:\"([^\"]*)\"|(\w+))", "".join(drawing.body), re.MULTILINE)
    return [re.sub(r"\s+", " ", quoted or plain).strip() for quoted, plain in found]


def arrows(drawing: object) -> int:
    return sum("->" in line for line in drawing.body)


@pytest.mark.parametrize("tail", [torch.sum, lambda made: made.exp().mean() + made.square().sum()])
def test_of_a_sound_program_it_is_what_torchviz_draws_while_the_loss_lives(tail: Callable[..., torch.Tensor]) -> None:
    model, x = pair(), torch.ones(5, 3, requires_grad=True)

    def step() -> torch.Tensor:
        return tail(model["outer"](model["inner"](x).relu()))

    ours = gradkit.diagnose(step, model=model).graph(view="torchviz", language="en")
    theirs = torchviz_view._make_dot()(step(), params=dict(model.named_parameters()))
    assert [label.removeprefix("loss ") for label in labels(ours)] == labels(theirs)
    assert arrows(ours) == arrows(theirs)


def test_the_half_before_the_cut_is_drawn_beside_the_one_behind_the_loss() -> None:
    model = pair()
    report = gradkit.diagnose(torn(model), model=model)
    found = labels(report.graph(view="torchviz", language="en"))
    assert found.count("AddmmBackward0") == 2
    order = ("loss ()", "outer.weight (1, 4)", "no gradient reaches this part (5, 4)", "inner.weight (4, 3)")
    assert sorted(order, key=found.index) == list(order)


def test_what_was_lost_without_any_history_is_drawn_from_the_rerun() -> None:
    model, x = pair(), torch.ones(5, 3)

    def step() -> torch.Tensor:
        with torch.no_grad():
            made = model["inner"](x)
        return model["outer"](made).sum()

    found = labels(gradkit.diagnose(step, model=model).graph(view="torchviz"))
    assert found.count("AddmmBackward0") == 2
    assert "inner.weight (4, 3)" in found


def test_without_a_rerun_only_what_lies_behind_the_loss_is_drawn() -> None:
    model = pair()
    report = gradkit.diagnose(torn(model), model=model, replay=False)
    assert "inner.weight (4, 3)" not in labels(report.graph(view="torchviz"))
    assert "outer.weight (1, 4)" in labels(report.graph(view="torchviz"))


def test_starved_parameters_are_framed_in_red_and_no_others() -> None:
    model = pair()
    drawing = gradkit.diagnose(torn(model), model=model).graph(view="torchviz")
    names = dict(re.findall(r"(n\d+) \[label=\"([\w.]+)\n", "".join(drawing.body)))
    red = re.findall(rf"(n\d+) \[.*{style.RED}.*peripheries=2", "".join(drawing.body))
    assert {names[one] for one in red} == {"inner.weight", "inner.bias"}


def test_a_loss_without_any_history_is_drawn_beside_what_was_cut_off() -> None:
    model = pair()
    report = gradkit.diagnose(lambda: model["inner"](torch.ones(5, 3)).sum().detach(), model=model)
    found = labels(report.graph(view="torchviz", language="zh"))
    assert found[0] == "损失 ()"
    assert "inner.weight (4, 3)" in found


def test_a_parameter_of_both_halves_is_one_box() -> None:
    model, x = pair(), torch.ones(5, 3)

    def step() -> torch.Tensor:
        seen = model["outer"](model["inner"](x).detach()).sum()
        return seen + model["inner"].bias.sum()

    found = labels(gradkit.diagnose(step, model=model).graph(view="torchviz"))
    assert found.count("inner.bias (4)") == 1
    assert found.count("inner.weight (4, 3)") == 1


def test_a_function_that_saved_none_is_drawn() -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            ctx.variable = None
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad

    model, x = pair(), torch.ones(5, 3)
    report = gradkit.diagnose(lambda: Same.apply(model["inner"](x)).sum(), model=model)
    assert "SameBackward" in labels(report.graph(view="torchviz"))
    assert report.untried == ()


def test_a_graph_that_is_too_large_is_refused_in_one_sentence() -> None:
    model, x = nn.Linear(3, 3), torch.ones(1, 3)

    def step() -> torch.Tensor:
        made = x
        for _ in range(200):
            made = model(made).tanh()
        return made.sum()

    report = gradkit.diagnose(step, model=model)
    with pytest.raises(GradkitError, match=r"The graph has \d+ nodes, and torchviz draws at most 300"):
        report.graph(view="torchviz")
    assert report.autograd.nodes == ()


def test_the_deepest_graph_that_is_drawn_does_not_meet_the_recursion_limit() -> None:
    chain = tuple(AutogradNode("SinBackward0", i, False, (), (i + 1,)) for i in range(299))
    nodes = (*chain, AutogradNode("w", -1, True, (), ()))
    assert labels(dot(Kept(nodes, (), 300, 300), ())).count("SinBackward0") == 299


def test_a_report_without_a_graph_says_so() -> None:
    with pytest.raises(GradkitError, match="left no autograd graph"):
        dot(Kept(), ())


def test_names_that_would_act_are_escaped() -> None:
    nodes = (AutogradNode("A\x1bB", 1, False, (), (1,)), AutogradNode('w"\n\x1b\\l', -1, True, (2,), ()))
    source = dot(Kept(nodes, (), 2, 2), ()).source
    assert "\x1b" not in source
    assert r"A\\x1bB" in source


def test_the_same_program_gives_the_same_text_each_time() -> None:
    model = pair()
    first, second = (gradkit.diagnose(torn(model), model=model).graph(view="torchviz").source for _ in range(2))
    assert first == second


def test_it_can_be_laid_out_and_saved(tmp_path) -> None:
    model = pair()
    report = gradkit.diagnose(torn(model), model=model)
    assert "inner.weight" in report.svg(view="torchviz")
    assert report.save(tmp_path / "graph.png", view="torchviz").read_bytes().startswith(b"\x89PNG")


def test_both_halves_are_handed_to_torchviz_at_once(monkeypatch):
    made, calls = torchviz_view._make_dot(), []
    monkeypatch.setattr(
        torchviz_view, "_make_dot", lambda: lambda ends, **said: (calls.append(ends), made(ends, **said))[1]
    )
    model = pair()
    gradkit.diagnose(torn(model), model=model).graph(view="torchviz")
    assert [len(ends) for ends in calls] == [2]


def test_the_plate_hangs_between_the_half_that_is_cut_off_and_the_one_behind_the_loss() -> None:
    model = pair()
    report = gradkit.diagnose(torn(model), model=model)
    source = report.graph(view="torchviz", language="en").source
    cut = next(node.number for node in report.picture.nodes if node.kind == "cut")
    names = dict(re.findall(r"^\t(n\d+) \[label=\"?([\w ]+)", source, re.MULTILINE))
    before = re.findall(rf"^\t(n\d+) -> n{cut} ", source, re.MULTILINE)
    behind = re.findall(rf"^\tn{cut} -> (n\d+) ", source, re.MULTILINE)
    assert "test_torchviz_view.py" in source
    assert [names[one] for one in (*before, *behind)] == ["no gradient reaches this part", "AddmmBackward0"]


def test_what_has_its_gradient_is_green_as_in_the_other_drawings() -> None:
    model = pair()
    source = gradkit.diagnose(torn(model), model=model).graph(view="torchviz").source
    named = dict(re.findall(r'^\t(n\d+) \[label="([\w.]+)\n', source, re.MULTILINE))
    green = re.findall(rf'^\t(n\d+) \[class=live color="{style.GREEN}"', source, re.MULTILINE)
    assert {named[one] for one in green if one in named} == {"outer.weight", "outer.bias"}


def test_a_finding_without_a_cut_has_its_plate_beside_what_it_speaks_of() -> None:
    model = pair()
    model["inner"].requires_grad_(False)
    step = lambda: model["outer"](model["inner"](torch.ones(5, 3))).sum()  # noqa: E731
    report = gradkit.diagnose(step, model=model, should_train=["*"])
    assert "style=dotted" in report.graph(view="torchviz").source
