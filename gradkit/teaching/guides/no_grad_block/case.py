"""Soil moisture: a frozen weather encoder and a probe that should learn stand in one no_grad block."""

import contextlib
import io

import torch
from torch import nn


class SoilMoisture(nn.Module):
    def __init__(self):
        super().__init__()
        self.weather = nn.Linear(6, 8).requires_grad_(False)
        self.probe = nn.Linear(4, 8)
        self.head = nn.Linear(16, 1)

    # [wrong]
    def forward(self, forecast, readings):
        with torch.no_grad():  # CUT
            sky = self.weather(forecast)
            soil = torch.tanh(self.probe(readings))
        return self.head(torch.cat([sky, soil], dim=1))
    # [end]


class FixedSoilMoisture(SoilMoisture):
    # [fixed]
    def forward(self, forecast, readings):
        with torch.no_grad():
            sky = self.weather(forecast)
        soil = torch.tanh(self.probe(readings))
        return self.head(torch.cat([sky, soil], dim=1))
    # [end]


class BlocklessSoilMoisture(SoilMoisture):
    def forward(self, forecast, readings):
        return self.head(torch.cat([self.weather(forecast), torch.tanh(self.probe(readings))], dim=1))


def program(kind):
    torch.manual_seed(0)
    model, forecast, readings, moisture = kind(), torch.randn(12, 6), torch.randn(12, 4), torch.rand(12, 1)
    return model, lambda: (model(forecast, readings) - moisture).pow(2).mean()


def make():
    return program(SoilMoisture)


FAILS = "partial"


def make_fixed():
    return program(FixedSoilMoisture)


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


# [see]
def show_flags(model, step):
    for name, module in model.named_children():
        module.register_forward_hook(lambda _, args, out, name=name: print(name, out.requires_grad))
    step()
# [end]


def experiment_the_loss_falls_while_the_probe_stands_still():
    model, step = make()
    probe, first = model.probe.weight.clone(), step().item()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        step().backward()
        optimizer.step()
    assert step().item() < first and torch.equal(model.probe.weight, probe)


def experiment_with_a_frozen_head_backward_raises():
    model, step = make()
    model.head.requires_grad_(False)
    try:
        step().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_the_flags_stay_true_inside_the_block():
    model, _ = make()
    with torch.no_grad():
        assert model.probe.weight.requires_grad
        assert not model.probe(torch.randn(1, 4)).requires_grad


def experiment_what_is_handed_back_or_made_inside_keeps_its_flag():
    weight = make()[0].probe.weight
    with torch.no_grad():
        handed_back = [nn.Identity()(weight), weight.to(weight.dtype), weight.requires_grad_()]
        made_inside = nn.Linear(4, 8).weight
        computed = [weight * 1, weight.clone(), weight.to(torch.float64), torch.cat([weight, weight])]
    assert all(value.requires_grad for value in [*handed_back, made_inside])
    assert not any(value.requires_grad for value in computed)


def experiment_a_view_says_true_and_brings_no_gradient_back():
    weight = make()[0].probe.weight
    with torch.no_grad():
        views = [weight[0], weight.T, weight.view(-1)]
    for view in views:
        assert view.requires_grad and view.grad_fn is None
        view.sum().backward()
        assert weight.grad is None


def experiment_the_hook_shows_where_the_flag_is_lost():
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        show_flags(*make())
    assert text.getvalue().splitlines() == ["weather False", "probe False", "head True"]


def experiment_the_cure_starves_nothing():
    assert starved(*make()) == ["probe.weight", "probe.bias"]
    assert starved(*make_fixed()) == []


def experiment_a_block_round_frozen_layers_changes_no_gradient():
    gradients = []
    for kind in (FixedSoilMoisture, BlocklessSoilMoisture):
        model, step = program(kind)
        step().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad]))
    assert torch.equal(*gradients)


def experiment_a_trainable_layer_before_the_block_gets_nothing():
    model, _ = make_fixed()
    station = nn.Linear(6, 6)
    with torch.no_grad():
        sky = model.weather(station(torch.randn(12, 6)))
    model.head(torch.cat([sky, sky], dim=1)).mean().backward()
    assert model.head.weight.grad.any() and station.weight.grad is None


def experiment_enable_grad_outside_does_not_reach_inside():
    model, step = make()
    with torch.enable_grad():
        assert starved(model, step) == ["probe.weight", "probe.bias"]


def experiment_eval_mode_cuts_nothing():
    model, step = make_fixed()
    assert starved(model.eval(), step) == []
    layers = [nn.Dropout(), nn.BatchNorm1d(4), nn.LayerNorm(4), nn.MultiheadAttention(4, 2),
              nn.TransformerEncoderLayer(4, 2, 8), nn.LSTM(4, 4)]
    for layer in layers:
        layer.eval()
        readings = torch.randn(5, 4, requires_grad=True)
        given = [readings] * 3 if isinstance(layer, nn.MultiheadAttention) else [readings]
        out = layer(*given)
        (out[0] if isinstance(out, tuple) else out).pow(3).sum().backward()
        assert readings.grad.any() and all(p.grad.any() for p in layer.parameters())


def experiment_requires_grad_after_the_block_does_not_mend_it():
    model, _ = make()
    with torch.no_grad():
        soil = model.probe(torch.randn(1, 4))
    soil.requires_grad_(True).sum().backward()
    assert soil.grad is not None and model.probe.weight.grad is None
