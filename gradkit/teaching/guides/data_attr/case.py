"""Paint: a mixer learns recipes of pigments; the recipe must not be negative, so it is clamped, through .data."""

import torch
from torch import nn


class PaintMixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.recipe = nn.Parameter(torch.rand(4, 5))
        self.varnish = nn.Linear(3, 3)

    # [wrong]
    def forward(self, pigments):
        recipe = self.recipe.data.clamp(min=0)  # CUT
        return self.varnish(recipe @ pigments)
    # [end]


class FixedPaintMixer(PaintMixer):
    # [fixed]
    def forward(self, pigments):
        recipe = self.recipe.clamp(min=0)
        return self.varnish(recipe @ pigments)
    # [end]


def program(kind):
    torch.manual_seed(0)
    model, pigments, wanted = kind(), torch.rand(5, 3), torch.rand(4, 3)
    return model, lambda: (model(pigments) - wanted).pow(2).mean()


def make():
    return program(PaintMixer)


FAILS = "partial"


def make_fixed():
    return program(FixedPaintMixer)


# [see]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


# [project]
def keep_non_negative(model):
    with torch.no_grad():
        model.recipe.clamp_(min=0)
# [end]


# [verify]
def moves(model, step):
    before = model.recipe.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step().backward()
    optimizer.step()
    return not torch.equal(model.recipe, before)
# [end]


def experiment_backward_runs_and_the_recipe_starves():
    assert starved(*make()) == ["recipe"]


def experiment_data_shares_memory_but_has_no_grad_fn():
    mixed = nn.Parameter(torch.rand(3)) * 2
    assert mixed.data.data_ptr() == mixed.data_ptr()
    assert mixed.grad_fn is not None and mixed.data.grad_fn is None


def experiment_autograd_catches_an_edit_through_detach_but_not_through_data():
    leaf = torch.ones(3, requires_grad=True)
    colour = torch.sigmoid(leaf)
    colour.detach().zero_()
    try:
        colour.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("the edit went unseen")
    colour = torch.sigmoid(leaf)
    colour.data.zero_()
    colour.sum().backward()
    assert torch.equal(leaf.grad, torch.zeros(3))


def experiment_the_cure_moves_the_recipe():
    assert starved(*make_fixed()) == []
    assert moves(*make_fixed()) and not moves(*make())


def experiment_clamping_after_the_step_keeps_the_graph():
    model, step = make_fixed()
    keep_non_negative(model)
    assert model.recipe.is_leaf and starved(model, step) == []


def experiment_requires_grad_on_the_copy_does_not_feed_the_recipe():
    recipe = nn.Parameter(torch.rand(3))
    copy = recipe.data.requires_grad_(True)
    copy.sum().backward()
    assert copy.grad is not None and recipe.grad is None


def experiment_setting_weights_through_data_before_the_forward_cuts_nothing():
    model, step = make_fixed()
    model.recipe.data.fill_(0.2)
    assert starved(model, step) == []
