"""An expression is written anew only if the step then means the same numbers; what is to learn gets its gradient."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import gradkit
from gradkit.source.changes import applied
from gradkit.types import Finding, Report

HEAD = """
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer, self.log = nn.Linear(4, 4), nn.Linear(4, 1), []
        self.state = torch.zeros(6, 4)


x = torch.linspace(-1, 1, 24).view(6, 4)


def put(target, value):
    with torch.no_grad():
        target.copy_(value)
    return target


def add(base, more):
    part = base[:3]
    part += more[:3]
    return base


@torch.inference_mode()
def codes(net):
    return net.inner(x)


"""
COUNT = itertools.count()
CURED = {
    "losses_made_a_tensor": (
        "return torch.tensor([net.outer(net.inner(row)).square().sum() for row in x]).mean()",
        "return torch.stack([net.outer(net.inner(row)).square().sum() for row in x]).mean()",
    ),
    "a_list_of_losses_with_a_dtype": (
        """
        losses = [net.outer(net.inner(row)).square().sum() for row in x]
        return torch.tensor(losses, dtype=torch.float).mean()
        """,
        """
        losses = [net.outer(net.inner(row)).square().sum() for row in x]
        return torch.stack(losses).mean()
        """,
    ),
    "a_leaf_made_of_the_loss": (
        "return torch.tensor(net.outer(net.inner(x)).square().mean(), requires_grad=True)",
        "return net.outer(net.inner(x)).square().mean()",
    ),
    "a_parameter_made_of_a_code": (
        "return net.outer(nn.Parameter(net.inner(x) * 2)).square().mean()",
        "return net.outer(net.inner(x) * 2).square().mean()",
    ),
    "items_summed_and_made_a_tensor": (
        """
        total = 0.0
        for row in x:
            total += net.outer(net.inner(row)).square().sum().item()
        return torch.tensor(total / len(x))
        """,
        """
        total = 0.0
        for row in x:
            total += net.outer(net.inner(row)).square().sum()
        return total / len(x)
        """,
    ),
    "a_float_that_scales": (
        "return (net.outer(x) * float(net.inner(x).mean() + 1)).square().mean()",
        "return (net.outer(x) * (net.inner(x).mean() + 1)).square().mean()",
    ),
    "a_term_that_is_overwritten_by_its_number": (
        """
        term = net.inner(x).square().mean()
        term = term.detach().item()
        net.log.append(term)
        return net.outer(x).square().mean() + term
        """,
        "return net.outer(x).square().mean() + net.inner(x).square().mean()",
    ),
    "an_array_and_back": (
        """
        code = net.inner(x).tanh().detach().cpu().numpy()
        code = code * 2 + 1
        return net.outer(torch.from_numpy(code)).square().mean()
        """,
        "return net.outer(net.inner(x).tanh() * 2 + 1).square().mean()",
    ),
    "an_array_made_in_a_block": (
        """
        with torch.no_grad():
            rows = [row for row in net.inner(x).detach().numpy()]
        return net.outer(torch.stack([torch.as_tensor(row) for row in rows])).square().mean()
        """,
        "return net.outer(net.inner(x)).square().mean()",
    ),
    "a_sum_written_over_what_is_needed": (
        """
        code = net.inner(x).sigmoid()
        code += x
        return net.outer(code).square().mean()
        """,
        "return net.outer(net.inner(x).sigmoid() + x).square().mean()",
    ),
    "a_product_with_a_sum": (
        """
        code = net.inner(x).sigmoid()
        code *= x + 1
        return net.outer(code).square().mean()
        """,
        "return net.outer(net.inner(x).sigmoid() * (x + 1)).square().mean()",
    ),
    "a_method_that_writes": (
        """
        code = net.inner(x).exp()
        code.mul_(2)
        return net.outer(code).square().mean()
        """,
        "return net.outer(net.inner(x).exp() * 2).square().mean()",
    ),
    "an_activation_in_place": (
        """
        code = net.inner(x).exp()
        return net.outer(F.elu(code - code, inplace=True) + F.hardtanh(code, 0.0, 1.0, inplace=True)).square().mean()
        """,
        """
        code = net.inner(x).exp()
        return net.outer(F.elu(code - code) + F.hardtanh(code, 0.0, 1.0)).square().mean()
        """,
    ),
    "a_buffer_that_is_filled_without_recording": (
        "return net.outer(put(torch.zeros(6, 4), net.inner(x))).square().mean()",
        "return net.outer(net.inner(x)).square().mean()",
    ),
    "inference_mode_round_a_layer": (
        """
        with torch.inference_mode():
            code = net.inner(x)
        return net.outer(code.clone()).square().mean()
        """,
        "return net.outer(net.inner(x)).square().mean()",
    ),
    "inference_mode_as_a_decorator": (
        "return net.outer(codes(net).clone()).square().mean()",
        "return net.outer(net.inner(x)).square().mean()",
    ),
}
KEPT_AS_IT_IS = {
    "a_deviation_that_numpy_takes_over_all_and_torch_over_one_less": """
        return net.outer(x).square().mean() * float(net.inner(x).detach().numpy().std())
        """,
    "a_function_of_numpy_that_takes_no_tensor_with_a_history": """
        return net.outer(torch.from_numpy(np.exp(net.inner(x).detach().numpy()))).square().mean()
        """,
    "a_view_by_which_the_whole_is_written": """
        return net.outer(add(net.inner(x).sigmoid(), x)).square().mean()
        """,
    "numbers_beside_a_tensor": """
        return net.outer(x).square().mean() + torch.tensor([net.inner(x).mean(), 1.0]).sum()
        """,
    "a_rounded_number": """
        return net.outer(x).square().mean() * round(net.inner(x).mean().item(), 1)
        """,
    "a_number_that_python_asks_twice": """
        level = net.inner(x).mean().item()
        net.log.append({"level": level})
        return net.outer(x).square().mean() * [1.0, 2.0][int(level > 0)] + 0 * level
        """,
}


def text_of(body: str) -> str:
    inner = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    return f"{HEAD}def make():\n    net = Net()\n\n    def step():\n{inner}\n\n    return net, step\n"


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    names = []

    def load(text: str) -> ModuleType:
        file = tmp_path / f"rewritten_{next(COUNT)}.py"
        file.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        names.append(file.stem)
        module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]


def diagnosed(module: ModuleType, *, replay: bool = True) -> Report:
    net, step = module.make()
    return gradkit.diagnose(step, model=net, replay=replay)


def offered(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.tried is not None and finding.tried.changes]


def changed(text: str, report: Report) -> str:
    lines = dict.fromkeys(line for finding in offered(report) if finding.tried for line in finding.tried.changes)
    return applied(text, sorted(lines, key=lambda one: (one.number, one.sign != "-")))


def gradients(module: ModuleType) -> dict[str, torch.Tensor | None]:
    net, step = module.make()
    step().backward()
    return {name: parameter.grad for name, parameter in net.named_parameters()}


@pytest.mark.parametrize("name", CURED)
def test_the_gradients_are_those_that_were_meant(name: str, load: Callable[[str], ModuleType]) -> None:
    wrong, right = map(text_of, CURED[name])
    report = diagnosed(load(wrong))
    assert offered(report)
    made, meant = gradients(load(changed(wrong, report))), gradients(load(right))
    for parameter, grad in meant.items():
        torch.testing.assert_close(made[parameter], grad, msg=lambda said, of=parameter: f"{of}: {said}")


@pytest.mark.parametrize("name", CURED)
def test_nothing_is_found_any_more(name: str, load: Callable[[str], ModuleType]) -> None:
    wrong = text_of(CURED[name][0])
    again = diagnosed(load(changed(wrong, diagnosed(load(wrong)))))
    assert again.findings == ()


@pytest.mark.parametrize("name", KEPT_AS_IT_IS)
def test_where_it_would_mean_something_else_nothing_is_offered(name: str, load: Callable[[str], ModuleType]) -> None:
    report = diagnosed(load(text_of(KEPT_AS_IT_IS[name])))
    assert report.findings
    assert offered(report) == []
    assert [finding.tried for finding in report.findings] == [None] * len(report.findings)


def test_without_a_further_run_nothing_is_said_of_it(load: Callable[[str], ModuleType]) -> None:
    report = diagnosed(load(text_of(CURED["losses_made_a_tensor"][0])), replay=False)
    assert [finding.tried for finding in report.findings] == [None]


def test_what_python_only_logs_is_still_logged_without_a_history(load: Callable[[str], ModuleType]) -> None:
    wrong = text_of(CURED["a_term_that_is_overwritten_by_its_number"][0])
    net, step = load(changed(wrong, diagnosed(load(wrong)))).make()
    step()
    assert [type(one) for one in net.log] == [float]


def test_a_state_whose_detached_self_was_dropped_is_carried_over_without_its_history(
    load: Callable[[str], ModuleType],
) -> None:
    wrong = text_of(
        """
        net.state.detach()
        net.state = torch.tanh(net.inner(x) + net.state)
        return net.outer(net.state).square().mean()
        """
    )
    net, step = load(wrong).make()
    step().backward()
    cured = changed(wrong, gradkit.diagnose(step, model=net))
    assert "        net.state = net.state.detach()\n" in cured
    net, step = load(cured).make()
    for _ in range(3):
        step().backward()


def test_a_bias_is_meant_to_learn_with_the_weight_that_is_named() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))

    def step() -> torch.Tensor:
        with torch.no_grad():
            code = net[0](torch.ones(2, 4))
        loss: torch.Tensor = net[1](code).square().mean()
        return loss

    report = gradkit.diagnose(step, model=net, should_train=["0.weight", "1.weight"])
    assert [finding.tried and finding.tried.outcome for finding in report.findings] == ["cures"]


def test_another_layer_is_not_meant_to_learn_with_the_weight_that_is_named() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))

    def step() -> torch.Tensor:
        code = net[1](net[0](torch.ones(2, 4))).detach()
        loss: torch.Tensor = net[2](code).square().mean()
        return loss

    report = gradkit.diagnose(step, model=net, should_train=["1.weight", "2.weight"])
    assert [finding.tried and finding.tried.why for finding in report.findings] == ["reaches"]
