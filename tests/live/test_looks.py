"""What a look finds suspicious, and what stands around an optimizer's step."""

from __future__ import annotations

import copy
import sys
import weakref
from types import FrameType

import pytest
import torch
from torch import nn

from gradkit.live import looks, surroundings
from gradkit.live.looks import EMPTY_GROUP, FROZEN, LASTING, MISSING, NOT_FINITE, ZERO, Looks
from gradkit.live.surroundings import ANEW, LEFT_OUT, STRAY
from gradkit.witness.listening import listening


def here() -> FrameType:
    return sys._getframe(1)


@pytest.fixture
def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


@pytest.fixture
def optimizer(net: nn.Sequential) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=0.1)


def with_gradients(net: nn.Module) -> None:
    for one in net.parameters():
        one.grad = torch.ones_like(one)


def stepped(known: Looks, optimizer: torch.optim.Optimizer) -> frozenset[str]:
    known.steps += 1
    found = known.look()
    optimizer.step()
    return found


# -- gradients ------------------------------------------------------------------------------------------------------


def test_gradients_that_are_there_are_not_suspicious(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    with_gradients(net)
    assert Looks(optimizer).look() == frozenset()


def test_a_gradient_that_is_missing_is_suspicious_at_once(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    with_gradients(net)
    net[0].weight.grad = None
    known = Looks(optimizer)
    assert known.look() == {MISSING}
    assert known.still_missing() == {id(net[0].weight)}


def test_what_lbfgs_has_written_may_still_have_had_no_gradient(net: nn.Sequential) -> None:
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.no_grad():
            hidden = net[0](torch.ones(1, 2))
        loss = net[2](hidden).square().sum()
        loss.backward()
        return loss

    known = Looks(optimizer)
    for _ in range(2):
        optimizer.step(closure)
        assert known.look() == {MISSING}
    assert known.still_missing() == {id(net[0].weight), id(net[0].bias)}


def test_what_had_a_gradient_in_one_look_is_missing_no_more(
    net: nn.Sequential, optimizer: torch.optim.Optimizer
) -> None:
    known = Looks(optimizer)
    known.look()
    with_gradients(net)
    assert stepped(known, optimizer) == frozenset()
    optimizer.zero_grad()
    assert stepped(known, optimizer) == frozenset()


@pytest.mark.parametrize("fused", [False, True])
def test_what_was_trained_between_the_looks_is_struck_off(net: nn.Sequential, *, fused: bool) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), fused=fused)
    known = Looks(optimizer)
    known.look()
    net[2].weight.grad = torch.ones_like(net[2].weight)
    optimizer.step()
    net[2].weight.grad = None
    assert id(net[2].weight) not in known.still_missing()
    assert id(net[0].weight) in known.still_missing()


def test_fused_steps_that_leave_no_state_are_judged_as_long_as_each_is_looked_at(net: nn.Sequential) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
    known = Looks(optimizer)
    assert stepped(known, optimizer) == {MISSING}
    assert len(known.still_missing()) == 4
    known.steps += 1
    assert known.still_missing() == set()


def test_zero_is_suspicious_once_it_has_lasted(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    with_gradients(net)
    net[0].weight.grad = torch.zeros_like(net[0].weight)
    known = Looks(optimizer)
    assert [stepped(known, optimizer) for _ in range(LASTING)] == [frozenset(), frozenset(), {ZERO}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_number_that_is_not_finite_is_suspicious(
    net: nn.Sequential, optimizer: torch.optim.Optimizer, value: float
) -> None:
    with_gradients(net)
    assert net[2].weight.grad is not None
    net[2].weight.grad[0, 1] = value
    assert Looks(optimizer).look() == {NOT_FINITE}


def test_an_overflow_that_a_scaler_leaves_to_the_optimizer_is_not_suspicious(
    net: nn.Sequential, optimizer: torch.optim.Optimizer
) -> None:
    with_gradients(net)
    assert net[2].weight.grad is not None
    net[2].weight.grad[0, 1] = float("inf")
    optimizer.found_inf = torch.ones(1)  # type: ignore[attr-defined]
    assert Looks(optimizer).look() == frozenset()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gradients_of_any_precision_are_looked_at_together(
    net: nn.Sequential, optimizer: torch.optim.Optimizer, dtype: torch.dtype
) -> None:
    net[0].to(dtype)
    with_gradients(net)
    assert Looks(optimizer).look() == frozenset()


def test_sparse_gradients_and_empty_parameters_are_let_pass() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    optimizer = torch.optim.SGD([*table.parameters(), nn.Parameter(torch.ones(0))], lr=0.1)
    assert Looks(optimizer).look() == frozenset()


def test_an_optimizer_of_frozen_parameters_is_suspicious(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    net.requires_grad_(False)
    assert Looks(optimizer).look() == {FROZEN}


def test_a_group_that_a_filter_left_empty_is_suspicious(net: nn.Sequential) -> None:
    optimizer = torch.optim.SGD([{"params": list(net.parameters())}, {"params": []}], lr=0.1)
    with_gradients(net)
    assert Looks(optimizer).look() == {EMPTY_GROUP}


def test_parameters_that_join_later_are_judged_from_then_on(
    net: nn.Sequential, optimizer: torch.optim.Optimizer
) -> None:
    with_gradients(net)
    known, late = Looks(optimizer), nn.Parameter(torch.ones(1))
    assert stepped(known, optimizer) == frozenset()
    optimizer.add_param_group({"params": [late]})
    assert stepped(known, optimizer) == {MISSING}
    assert known.still_missing() == {id(late)}


def test_a_look_changes_nothing(net: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    with_gradients(net)
    before = [(p._version, p.grad, None if p.grad is None else p.grad._version) for p in net.parameters()]
    state = torch.get_rng_state()
    Looks(optimizer).look()
    after = [(p._version, p.grad, None if p.grad is None else p.grad._version) for p in net.parameters()]
    assert [(a[0], id(a[1]), a[2]) for a in before] == [(a[0], id(a[1]), a[2]) for a in after]
    assert torch.equal(torch.get_rng_state(), state)


def test_looks_go_on_right_after_a_suspicion_until_it_has_lasted(
    net: nn.Sequential, optimizer: torch.optim.Optimizer
) -> None:
    with_gradients(net)
    known = Looks(optimizer)
    known.steps = 9
    stepped(known, optimizer)
    assert known.due == 100
    known.steps = 99
    net[0].weight.grad = torch.full_like(net[0].weight, float("nan"))
    due = []
    for _ in range(LASTING):
        stepped(known, optimizer)
        due.append(known.due)
    assert due == [101, 102, 1000]


def test_looks_do_not_keep_an_optimizer_alive() -> None:
    known = Looks(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1))
    assert known.optimizer is None
    assert known.look() == frozenset()


def test_versions_count_what_is_written() -> None:
    weight = nn.Parameter(torch.ones(2))
    before = looks.versions([weight])
    with torch.no_grad():
        weight.add_(1)
    assert looks.versions([weight]) == {id(weight): before[id(weight)] + 1}


# -- what stands around ---------------------------------------------------------------------------------------------


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(2)), nn.Linear(2, 2)


def test_a_parameter_in_the_midst_of_those_that_train_is_suspicious() -> None:
    net = Scaled()
    optimizer = torch.optim.SGD(net.inner.parameters(), lr=0.1)
    found, about = surroundings.look(here(), optimizer)
    assert found == {LEFT_OUT}
    assert [one is net.scale for one in about] == [True]


def test_a_parameter_that_another_optimizer_trains_is_not() -> None:
    net = Scaled()
    optimizer, other = torch.optim.SGD(net.inner.parameters(), lr=0.1), torch.optim.Adam([net.scale])
    assert surroundings.look(here(), optimizer) == (frozenset(), ())
    assert other.param_groups[0]["params"][0] is net.scale


def test_a_head_that_is_trained_alone_is_not_suspicious() -> None:
    net = nn.Sequential(Scaled(), nn.Linear(2, 1))
    assert surroundings.look(here(), torch.optim.SGD(net[1].parameters(), lr=0.1)) == (frozenset(), ())


def test_a_parameter_that_joined_after_the_optimizer_and_gets_a_gradient_is_suspicious() -> None:
    with listening():
        net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net[1].scale = nn.Parameter(torch.ones(2))
    with_gradients(net)
    found, about = surroundings.look(here(), optimizer)
    assert found == {LEFT_OUT}
    assert [one is net[1].scale for one in about] == [True]


def test_a_copy_that_joined_after_the_optimizer_and_gets_no_gradient_is_not() -> None:
    with listening():
        net = nn.ModuleDict({"online": nn.Linear(2, 2)})
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net["target"] = copy.deepcopy(net["online"])
    with_gradients(net["online"])
    assert surroundings.look(here(), optimizer) == (frozenset(), ())


def test_what_joined_later_is_not_where_the_optimizer_was_given_a_part() -> None:
    with listening():
        net = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 1)})
        optimizer = torch.optim.SGD(net["head"].parameters(), lr=0.1)
        net["other"] = nn.Linear(2, 1)
    with_gradients(net)
    assert surroundings.look(here(), optimizer) == (frozenset(), ())


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.made = [nn.Parameter(torch.ones(2))]
        return self.out(x * self.made[0])


def test_a_parameter_that_forward_makes_and_a_gradient_reaches_is_suspicious() -> None:
    with listening():
        net = Pooled()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(1, 2)).sum().backward()
        found, _ = surroundings.look(here(), optimizer)
    assert ANEW in found


def test_it_stays_suspicious_once_nobody_listens() -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert surroundings.look(here(), optimizer, net, {ANEW}) == ({ANEW}, ())


def test_a_parameter_that_was_made_beside_any_forward_is_not_suspicious_as_made_anew() -> None:
    with listening():
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        delta = nn.Parameter(torch.zeros(2))
        net(torch.ones(1, 2) + delta).sum().backward()
        found, _ = surroundings.look(here(), optimizer)
    assert ANEW not in found


def test_layers_in_a_nested_list_are_suspicious() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = [[nn.Linear(2, 2), nn.Tanh()]], nn.Linear(2, 1)

    net = Listed()
    found, about = surroundings.look(here(), torch.optim.SGD(net.parameters(), lr=0.1))
    assert found == {STRAY}
    assert {id(one) for one in about} == {id(one) for one in net.layers[0][0].parameters()}


def test_a_frozen_teacher_in_a_list_is_not() -> None:
    class Taught(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher, self.head = [nn.Linear(2, 2).requires_grad_(False)], nn.Linear(2, 1)

    net = Taught()
    assert surroundings.look(here(), torch.optim.SGD(net.parameters(), lr=0.1)) == (frozenset(), ())


def test_models_are_found_in_attributes_of_the_frames_further_out() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Sequential(Scaled())
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def models(self) -> list[nn.Module]:
            def inner() -> list[nn.Module]:
                return surroundings.models_of(here(), {id(p) for p in looks.held_by(optimizer)})

            optimizer = self.optimizer
            return inner()

    one = Trainer()
    assert [model is one.model for model in one.models()] == [True]


def test_asking_for_a_frames_variables_keeps_none_of_them_alive() -> None:
    def run() -> tuple[weakref.ref[nn.Module], weakref.ref[nn.Module] | None]:
        module = nn.Linear(1, 1)
        known = weakref.ref(module)
        assert surroundings.locals_of(sys._getframe())["module"] is module
        del module
        return known, known() and known

    assert run()[1] is None


def test_a_dictionary_of_variables_that_a_program_keeps_is_not_emptied() -> None:
    value = 3
    mine = locals()
    surroundings.locals_of(sys._getframe())
    assert mine["value"] == value
