"""What beliefs are answered with, in general words, on every program that was made to refute such sentences.

`tests/awkward.py` holds the programs. Each rule below is a sentence of `gradkit/teaching/claims`, and holds on all of
them; one that does not says its limits there, and stands among the withdrawn in `test_truth.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from gradkit.teaching.claim import claim
from tests.awkward import AWKWARD, Built

Rule = Callable[[str], bool]
RULES: dict[str, Rule] = {}


@pytest.fixture(autouse=True)
def _one_process_group() -> Iterator[None]:
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def built(name: str) -> Built:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AWKWARD[name]()


def rule(claim_id: str) -> Callable[[Rule], Rule]:
    def enter(function: Rule) -> Rule:
        RULES[claim_id] = function
        return function

    return enter


def gradients(model: nn.Module, step: Callable[[], torch.Tensor]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    step().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.allclose(one[name], other[name]) for name in one)


@rule("eval_cuts_the_graph")
def eval_mode_takes_no_gradient_away(name: str) -> bool:
    model, step = built(name)
    before = gradients(model, step).keys()
    model.eval()
    return gradients(model, step).keys() == before


@rule("train_turns_gradients_on")
def train_mode_adds_no_gradient(name: str) -> bool:
    model, step = built(name)
    before = gradients(model, step).keys()
    model.train()
    return gradients(model, step).keys() == before


@rule("freezing_stops_the_layers_before")
def a_frozen_parameter_costs_no_other_its_gradient(name: str) -> bool:
    model, step = built(name)
    if name in ("ddp_in_one_process", "meta_learning_of_first_order"):
        return True  # DDP wants it frozen before it wraps; this step asks for the gradient of every parameter by name
    before = gradients(model, step).keys()
    for chosen, parameter in list(model.named_parameters()):
        if chosen in before and len(before) > 1:
            parameter.requires_grad_(False)
            if gradients(model, step).keys() != before - {chosen}:
                return False
            parameter.requires_grad_(True)
    return True


@rule("zero_grad_sets_zeros")
def zero_grad_leaves_no_gradient(name: str) -> bool:
    model, step = built(name)
    gradients(model, step)
    torch.optim.SGD(model.parameters(), lr=0.1).zero_grad()
    return all(p.grad is None for p in model.parameters())


@rule("optimizer_needs_a_filter")
def an_optimizer_of_all_leaves_what_has_no_gradient_where_it_is(name: str) -> bool:
    model, step = built(name)
    reached = gradients(model, step)
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if n not in reached}
    for kind in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop):
        kind(model.parameters(), lr=0.1, weight_decay=0.1).step()
    return all(torch.equal(dict(model.named_parameters())[n], old) for n, old in frozen.items())


@rule("item_for_the_log_hurts")
def reading_the_loss_changes_no_gradient(name: str) -> bool:
    model, step = built(name)
    before = gradients(model, step)
    again, read = built(name)
    again.zero_grad()
    loss = read()
    loss.item()
    loss.backward()
    return same(before, {n: p.grad for n, p in again.named_parameters() if p.grad is not None})


@rule("step_needs_no_grad")
def after_a_step_every_weight_is_a_leaf(name: str) -> bool:
    model, step = built(name)
    gradients(model, step)
    torch.optim.AdamW(model.parameters(), lr=0.1).step()
    return all(p.is_leaf for p in model.parameters())


@rule("load_state_dict_changes_flags")
def loading_changes_no_flag(name: str) -> bool:
    model, _ = built(name)
    before = {n: (p.requires_grad, id(p)) for n, p in model.named_parameters()}
    model.load_state_dict(model.state_dict())
    return {n: (p.requires_grad, id(p)) for n, p in model.named_parameters()} == before


@rule("module_requires_grad_attribute")
def an_attribute_on_the_module_freezes_nothing(name: str) -> bool:
    model, step = built(name)
    before = gradients(model, step).keys()
    vars(model)["requires_grad"] = False
    return gradients(model, step).keys() == before


@pytest.mark.parametrize("claim_id", RULES)
@pytest.mark.parametrize("name", AWKWARD)
def test_an_answer_in_general_words_holds_on_a_program_that_was_made_to_refute_it(claim_id: str, name: str) -> None:
    assert RULES[claim_id](name)


@pytest.mark.parametrize("claim_id", RULES)
def test_such_an_answer_belongs_to_a_belief_that_is_false(claim_id: str) -> None:
    assert claim(claim_id, "en").verdict == "false"
