"""A greenhouse: a net opens the vents between 0 and 1; the vents that are stuck stand half open, whatever it wants."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F

STUCK = [1, 4]


class Greenhouse(nn.Module):
    def __init__(self):
        super().__init__()
        self.sensor, self.vents, self.air = nn.Linear(6, 8), nn.Linear(8, 5), nn.Linear(5, 1)

    # [wrong]
    def opening(self, weather):
        opening = torch.sigmoid(self.vents(torch.tanh(self.sensor(weather))))
        opening[:, STUCK] = 0.5  # CUT
        return opening
    # [end]

    def forward(self, weather):
        return self.air(self.opening(weather))


class FixedGreenhouse(Greenhouse):
    # [fixed]
    def opening(self, weather):
        opening = torch.sigmoid(self.vents(torch.tanh(self.sensor(weather))))
        stuck = torch.zeros(5, dtype=torch.bool)
        stuck[STUCK] = True
        return opening.masked_fill(stuck, 0.5)
    # [end]


class CopyingGreenhouse(Greenhouse):
    def opening(self, weather):
        opening = torch.sigmoid(self.vents(torch.tanh(self.sensor(weather))))
        # [copy]
        opening = opening.clone()
        opening[:, STUCK] = 0.5
        # [end]
        return opening


class DetachingGreenhouse(Greenhouse):
    def opening(self, weather):
        opening = torch.sigmoid(self.vents(torch.tanh(self.sensor(weather)))).detach()
        opening[:, STUCK] = 0.5
        return opening


class DataGreenhouse(Greenhouse):
    def opening(self, weather):
        opening = torch.sigmoid(self.vents(torch.tanh(self.sensor(weather))))
        opening.data[:, STUCK] = 0.5
        return opening


class QuietGreenhouse(Greenhouse):
    def opening(self, weather):
        opening = torch.sigmoid(self.vents(torch.tanh(self.sensor(weather))))
        with torch.no_grad():
            opening[:, STUCK] = 0.5
        return opening


class LinearGreenhouse(Greenhouse):
    def opening(self, weather):
        opening = self.vents(torch.tanh(self.sensor(weather)))
        opening[:, STUCK] = 0.5
        return opening


def program(kind):
    torch.manual_seed(0)
    model, weather, degrees = kind(), torch.randn(7, 6), torch.rand(7, 1)
    return model, lambda: F.mse_loss(model(weather), degrees)


def make():
    return program(Greenhouse)


FAILS = "raises: modified by an inplace operation"


def make_fixed():
    return program(FixedGreenhouse)


def ask_torch(step):
    # [see]
    with torch.autograd.detect_anomaly():
        step().backward()
    # [end]


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


OVERWRITTEN = "one of the variables needed for gradient computation has been modified by an inplace operation"


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    return ""


def gradient(kind):
    model, step = program(kind)
    step().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def experiment_backward_raises():
    _, step = make()
    assert OVERWRITTEN in refused(step().backward)


def experiment_a_tensor_counts_how_often_it_was_written():
    opening = torch.rand(7, 5)
    before = opening._version
    opening[:, STUCK] = 0.5
    opening *= 2
    assert (before, opening._version) == (0, 2)
    opening = opening * 2
    assert opening._version == 0


def experiment_the_error_tells_both_counts():
    _, step = make()
    error = refused(step().backward)
    assert "output 0 of Sigmoid" in error and "is at version 1; expected version 0 instead" in error


def experiment_only_a_value_that_is_needed_again_is_guarded():
    assert starved(*program(LinearGreenhouse)) == []


def experiment_anomaly_mode_shows_who_needs_the_value_and_not_who_wrote_it():
    _, step = make()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert OVERWRITTEN in refused(lambda: ask_torch(step))
    told = " ".join(str(warning.message) for warning in seen)
    assert "opening = torch.sigmoid(" in told and "opening[:, STUCK] = 0.5" not in told


def experiment_the_cure_teaches_every_vent_that_moves():
    model, step = make_fixed()
    assert starved(model, step) == []
    rows = model.vents.weight.grad.abs().sum(dim=1)
    assert [number for number, row in enumerate(rows) if row == 0] == STUCK


def experiment_writing_into_a_copy_is_as_good():
    assert torch.allclose(gradient(CopyingGreenhouse), gradient(FixedGreenhouse))


def experiment_detach_ends_the_error_and_the_learning():
    model, step = program(DetachingGreenhouse)
    assert starved(model, step) == ["sensor.weight", "sensor.bias", "vents.weight", "vents.bias"]


def experiment_writing_through_data_gives_a_wrong_gradient_in_silence():
    assert gradient(DataGreenhouse).isfinite().all()
    assert not torch.allclose(gradient(DataGreenhouse), gradient(FixedGreenhouse), atol=1e-3)
    model, step = program(DataGreenhouse)
    step().backward()
    assert model.vents.weight.grad[STUCK].any()


def experiment_no_grad_and_retain_graph_do_not_help():
    _, quiet = program(QuietGreenhouse)
    assert OVERWRITTEN in refused(quiet().backward)
    _, step = make()
    assert OVERWRITTEN in refused(lambda: step().backward(retain_graph=True))


def experiment_an_optimizer_that_steps_too_early_overwrites_too():
    model, step = make_fixed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    early = step()
    step().backward()
    optimizer.step()
    assert OVERWRITTEN in refused(early.backward)
    step().backward()
