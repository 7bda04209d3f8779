"""Blood sugar: a sensor's current is calibrated to a rate of change; NumPy adds it up to a level."""

import numpy as np
import torch
from torch import nn


class GlucoseSensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.calibrate = nn.Linear(3, 1)
        self.start = nn.Parameter(torch.tensor(5.0))

    # [wrong]
    def forward(self, current):
        rate = self.calibrate(current).squeeze(-1)
        level = np.cumsum(rate.detach().numpy())  # CUT
        return self.start + torch.from_numpy(level)
    # [end]


class FixedGlucoseSensor(GlucoseSensor):
    # [fixed]
    def forward(self, current):
        rate = self.calibrate(current).squeeze(-1)
        level = rate.cumsum(dim=0)
        return self.start + level
    # [end]


# [function]
class CumSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rate):
        return torch.from_numpy(np.cumsum(rate.cpu().numpy())).to(rate.device)

    @staticmethod
    def backward(ctx, grad):
        return torch.from_numpy(np.cumsum(grad.cpu().numpy()[::-1])[::-1].copy()).to(grad.device)
# [end]


def program(kind):
    torch.manual_seed(0)
    sensor, current, measured = kind(), torch.rand(20, 3), 5 + torch.rand(20)
    return sensor, lambda: (sensor(current) - measured).pow(2).mean()


def make():
    return program(GlucoseSensor)


FAILS = "partial"


def make_fixed():
    return program(FixedGlucoseSensor)


# [see]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


# [verify]
def moved(model, step):
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step().backward()
    optimizer.step()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
# [end]


def experiment_backward_runs_and_the_calibration_starves():
    assert starved(*make()) == ["calibrate.weight", "calibrate.bias"]


def experiment_without_detach_torch_refuses():
    rate = nn.Parameter(torch.rand(4)) * 2
    try:
        rate.numpy()
    except RuntimeError as error:
        assert "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead." in str(error)
    else:
        raise AssertionError("numpy() ran")


def experiment_an_array_carries_numbers_only():
    rate = nn.Parameter(torch.rand(4)) * 2
    array = rate.detach().numpy()
    assert not hasattr(array, "grad_fn")
    assert not torch.from_numpy(array).requires_grad


def experiment_a_custom_function_gives_the_gradient_of_cumsum():
    for device in ["cpu", *["cuda"] * torch.cuda.is_available()]:
        gradients = []
        for add_up in (CumSum.apply, lambda rate: rate.cumsum(dim=0)):
            rate = torch.arange(4.0, device=device, requires_grad=True)
            add_up(rate).pow(2).sum().backward()
            gradients.append(rate.grad)
        assert torch.equal(*gradients)


def experiment_the_cure_moves_every_weight_and_gives_the_same_level():
    assert torch.allclose(make()[1](), make_fixed()[1]())
    assert moved(*make_fixed()) == ["start", "calibrate.weight", "calibrate.bias"]


def experiment_requires_grad_on_the_returned_tensor_connects_nothing():
    rate = nn.Parameter(torch.rand(4))
    level = torch.from_numpy(np.cumsum(rate.detach().numpy())).requires_grad_(True)
    level.sum().backward()
    assert level.grad is not None and rate.grad is None


def experiment_inputs_and_targets_may_come_from_numpy():
    model, _ = make_fixed()
    current, measured = (torch.from_numpy(np.ones(shape, dtype=np.float32)) for shape in ((6, 3), (6,)))
    (model(current) - measured).pow(2).mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
