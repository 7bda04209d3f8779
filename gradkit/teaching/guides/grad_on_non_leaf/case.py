"""Perfume: a frozen nose judges a blend of six oils, and it is the blend that should learn; it was scaled too late."""

import warnings

import torch
from torch import nn

SHOULD_TRAIN = ["blend"]


class Perfume(nn.Module):
    def __init__(self):
        super().__init__()
        self.nose = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).requires_grad_(False)
        self.pour()

    # [wrong]
    def pour(self):
        self.blend = torch.rand(6, requires_grad=True) / 6  # CUT
    # [end]

    def forward(self):
        return self.nose(self.blend)


class FixedPerfume(Perfume):
    # [fixed]
    def pour(self):
        self.blend = nn.Parameter(torch.rand(6) / 6)
    # [end]


# [order]
def poured_in_order():
    return (torch.rand(6) / 6).requires_grad_()
# [end]


def program(kind):
    torch.manual_seed(0)
    model, wish = kind(), torch.tensor([1.5])
    return model, lambda: (model() - wish).pow(2).sum()


def make():
    return program(Perfume)


FAILS = "silent"


def make_fixed():
    return program(FixedPerfume)


# [see]
def born(tensor):
    return "leaf" if tensor.is_leaf else tensor.grad_fn.name()
# [end]


# [verify]
def moved(model, step):
    optimizer, before = torch.optim.SGD([model.blend], lr=0.1), model.blend.clone()
    step().backward()
    optimizer.step()
    return not torch.equal(model.blend, before)
# [end]


def refused(run):
    try:
        run()
    except (RuntimeError, ValueError) as error:
        return str(error)
    raise AssertionError("it ran")


def experiment_backward_runs_and_grad_is_none():
    model, step = make()
    step().backward()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert model.blend.requires_grad and model.blend.grad is None
    assert any("The .grad attribute of a Tensor that is not a leaf Tensor" in str(w.message) for w in seen)


def experiment_the_optimizer_refuses_it():
    model, _ = make()
    assert "can't optimize a non-leaf Tensor" in refused(lambda: torch.optim.SGD([model.blend], lr=0.1))


def experiment_the_second_step_raises():
    _, step = make()
    step().backward()
    assert "Trying to backward through the graph a second time" in refused(lambda: step().backward())


def experiment_the_gradient_lies_in_the_tensor_before():
    oils = torch.rand(6, requires_grad=True)
    blend = oils / 6
    Perfume().nose(blend).sum().backward()
    assert oils.is_leaf and oils.grad.any() and not blend.is_leaf


def experiment_whatever_computes_makes_a_new_tensor():
    oils = torch.rand(6, requires_grad=True)
    for made in (oils / 6, oils.double(), oils.clone(), oils.reshape(1, 6), oils[:3], torch.cat([oils]), oils.to("meta")):
        assert made.requires_grad and not made.is_leaf


def experiment_a_move_to_where_it_is_already_returns_the_leaf():
    oils = torch.rand(6, requires_grad=True)
    assert oils.to("cpu") is oils and oils.float() is oils
    assert oils.to("meta") is not oils


def experiment_the_division_made_it():
    assert born(make()[0].blend) == "DivBackward0"
    assert born(make_fixed()[0].blend) == born(poured_in_order()) == "leaf"


def experiment_a_parameter_stays_a_leaf_when_the_module_moves():
    model, _ = make_fixed()
    assert model.double().blend.is_leaf and model.blend.dtype == torch.double
    assert "blend" in model.state_dict() and "blend" not in make()[0].state_dict()


def experiment_the_cure_moves_the_blend():
    model, step = make_fixed()
    assert all(moved(model, step) for _ in range(3))


def experiment_retain_grad_lasts_for_one_step():
    model, step = make()
    model.blend.retain_grad()
    assert moved(model, step)
    assert "Trying to backward through the graph a second time" in refused(lambda: step().backward())
    assert list(dict(model.named_parameters())) == [f"nose.{name}" for name, _ in model.nose.named_parameters()]


def experiment_the_flag_once_more_changes_nothing():
    model, _ = make()
    assert not model.blend.requires_grad_(True).is_leaf
    with_flag = refused(lambda: setattr(model.blend, "requires_grad", True))
    assert "you can only change requires_grad flags of leaf variables" in with_flag


def experiment_detaching_at_the_start_is_right():
    blend = make()[0].blend.detach().requires_grad_()
    Perfume().nose(blend).sum().backward()
    assert blend.is_leaf and blend.grad.any()


def experiment_in_the_middle_of_a_model_it_is_the_rule():
    layer, head = nn.Linear(4, 4), nn.Linear(4, 1)
    hidden = layer(torch.randn(2, 4))
    head(hidden).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not hidden.is_leaf and hidden.grad is None and layer.weight.grad.any()
