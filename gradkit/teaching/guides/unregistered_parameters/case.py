"""A glacier: every band of altitude has a layer of its own, kept in a Python list, where parameters() never looks."""

import contextlib
import io

import torch
from torch import nn

SHOULD_TRAIN = [f"bands.{band}.{part}" for band in range(3) for part in ("weight", "bias")]


class Glacier(nn.Module):
    # [wrong]
    def __init__(self):
        super().__init__()
        self.bands = [nn.Linear(4, 5) for _ in range(3)]  # CUT
        self.melt = nn.Linear(15, 1)
    # [end]

    def forward(self, weather):
        seen = [torch.tanh(band(air)) for band, air in zip(self.bands, weather.unbind(dim=1))]
        return self.melt(torch.cat(seen, dim=1)).squeeze(-1)


class FixedGlacier(nn.Module):
    # [fixed]
    def __init__(self):
        super().__init__()
        self.bands = nn.ModuleList([nn.Linear(4, 5) for _ in range(3)])
        self.melt = nn.Linear(15, 1)
    # [end]

    forward = Glacier.forward


class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = torch.ones(3)
        self.flagged = torch.ones(3, requires_grad=True)
        self.listed = [nn.Parameter(torch.ones(3))]
        self.register_buffer("saved", torch.ones(3))
        self.parameter = nn.Parameter(torch.ones(3))
        self.many = nn.ParameterList([nn.Parameter(torch.ones(3))])
        self.named = nn.ModuleDict({"low": nn.Linear(1, 1, bias=False)})


def program(kind):
    torch.manual_seed(0)
    model, weather, melt = kind(), torch.randn(9, 3, 4), torch.rand(9)

    def step():
        return (model(weather) - melt).pow(2).mean()

    step.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, step


def make():
    return program(Glacier)


FAILS = "unmoved"


def make_fixed():
    return program(FixedGlacier)


def shows(model):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        # [see]
        print(model)
        print([name for name, _ in model.named_parameters()])
        # [end]
    return text.getvalue()


# [verify]
def moved(model, step):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    step.optimizer.zero_grad()
    step().backward()
    step.optimizer.step()
    return [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
# [end]


MELT = ["melt.weight", "melt.bias"]


def experiment_the_loss_falls_and_the_bands_never_move():
    model, step = make()
    bands, first = [band.weight.clone() for band in model.bands], step().item()
    for _ in range(20):
        assert moved(model, step) == MELT
    assert step().item() < first
    assert all(torch.equal(band.weight, before) for band, before in zip(model.bands, bands))


def experiment_with_nothing_registered_the_optimizer_refuses():
    model, _ = make()
    del model.melt
    try:
        torch.optim.SGD(model.parameters(), lr=0.1)
    except ValueError as error:
        assert "optimizer got an empty parameter list" in str(error)
    else:
        raise AssertionError("the optimizer was built")


def experiment_a_gradient_arrives_and_nobody_takes_it():
    model, step = make()
    step().backward()
    model.zero_grad()
    assert model.melt.weight.grad is None
    assert all(band.weight.grad.abs().sum() > 0 for band in model.bands)


def experiment_saving_and_casting_pass_the_list_over():
    model, _ = make()
    assert list(model.state_dict()) == MELT
    model.double()
    assert model.melt.weight.dtype == torch.float64 and model.bands[0].weight.dtype == torch.float32


def experiment_these_forms_are_registered():
    found = {name for name, _ in Scales().named_parameters()}
    assert found >= {"parameter", "many.0", "named.low.weight"}


def experiment_a_flag_a_list_or_a_buffer_makes_no_parameter():
    model = Scales()
    found = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert not found & {"plain", "flagged", "listed", "saved"}
    assert model.flagged.requires_grad and "saved" in model.state_dict()


def experiment_the_list_is_not_printed():
    assert "bands" not in shows(make()[0]) and "melt" in shows(make()[0])
    assert "bands" in shows(make_fixed()[0])


def experiment_the_cure_moves_and_saves_every_weight():
    assert moved(*make_fixed()) == SHOULD_TRAIN + MELT


def experiment_the_optimizer_alone_trains_but_does_not_save():
    model, step = make()
    band = model.bands[0].weight.clone()
    step.optimizer.add_param_group({"params": [p for band in model.bands for p in band.parameters()]})
    moved(model, step)
    assert not torch.equal(model.bands[0].weight, band)
    assert "bands.0.weight" not in model.state_dict()


def experiment_a_list_of_results_is_harmless():
    model, step = make_fixed()
    step().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradients[name] is not None for name in SHOULD_TRAIN + MELT)
