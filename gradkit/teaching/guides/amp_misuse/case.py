"""A beehive: a net counts bees by their hum, in half precision; its gradients are scaled up, and clipped meanwhile."""

import torch
from torch import nn
from torch.nn import functional as F

SCALE = 1024.0


class Beehive(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear, self.bees = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, hum):
        return self.bees(torch.tanh(self.ear(hum)))


def counted(model, hum, bees):
    with torch.autocast("cpu", dtype=torch.float16):
        return F.mse_loss(model(hum).float(), bees)


def train(model, optimizer, scaler, hum, bees):
    # [wrong]
    optimizer.zero_grad()
    loss = counted(model, hum, bees)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CUT
    scaler.step(optimizer)
    scaler.update()
    # [end]
    return loss


def train_fixed(model, optimizer, scaler, hum, bees):
    # [fixed]
    optimizer.zero_grad()
    loss = counted(model, hum, bees)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    # [end]
    return loss


def train_without_scale(model, optimizer, scaler, hum, bees):
    optimizer.zero_grad()
    loss = counted(model, hum, bees)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def train_past_the_scaler(model, optimizer, scaler, hum, bees):
    optimizer.zero_grad()
    loss = counted(model, hum, bees)
    scaler.scale(loss).backward()
    optimizer.step()
    return loss


def train_plainly(model, optimizer, scaler, hum, bees):
    optimizer.zero_grad()
    loss = F.mse_loss(model(hum), bees)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def data():
    return torch.randn(12, 8), 3 + torch.rand(12, 1)


def program(train, optimizer=torch.optim.SGD, scaler=None, lr=0.1):
    torch.manual_seed(0)
    model, (hum, bees) = Beehive(), data()
    optimizer = optimizer(model.parameters(), lr=lr)
    scaler = scaler or torch.amp.GradScaler("cpu", init_scale=SCALE)
    return model, lambda: train(model, optimizer, scaler, hum, bees)


def make():
    return program(train)


FAILS = "hardly moved"


def make_fixed():
    return program(train_fixed)


# [see]
def gradient_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm().item()
# [end]


def scaler_for(device, use_amp):
    # [device]
    scaler = torch.amp.GradScaler(device, enabled=use_amp)
    # [end]
    return scaler


# [verify]
def moved(model, step):
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step()
    return torch.cat([(after - old).flatten() for after, old in zip(model.parameters(), before)]).norm().item()
# [end]


def refused(run):
    try:
        run()
    except (AssertionError, RuntimeError, ValueError) as error:
        return str(error)
    return ""


def near(one, other, share=0.02):
    return abs(one - other) < share * other


def experiment_nothing_raises_and_nothing_is_learned():
    losses = {}
    for maker in (make, make_fixed):
        _, step = maker()
        first = step().item()
        for _ in range(40):
            last = step().item()
        losses[maker] = last / first
    assert losses[make] > 0.98 and losses[make_fixed] < 0.2


def experiment_small_numbers_vanish_in_half_precision():
    small = torch.tensor(1e-8)
    assert small.half() == 0 and (small * 65536).half() != 0


def experiment_clipped_to_one_and_then_divided_by_the_scale():
    model, step = make()
    step()
    assert near(gradient_norm(model), 1 / SCALE)


def experiment_before_the_clip_the_norm_is_a_thousand_times_too_big():
    model, (hum, bees) = program(train)[0], data()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=SCALE)
    scaler.scale(counted(model, hum, bees)).backward()
    scaled = gradient_norm(model)
    scaler.unscale_(optimizer)
    assert near(scaled, SCALE * gradient_norm(model))


def experiment_the_cure_steps_as_far_as_full_precision_does():
    assert near(moved(*make_fixed()), moved(*program(train_plainly)))
    assert moved(*make()) < moved(*make_fixed()) / 500


def experiment_adam_hides_it():
    wrong, cured = (moved(*program(way, torch.optim.Adam)) for way in (train, train_fixed))
    assert near(wrong, cured)


def experiment_an_unscaled_backward_is_divided_all_the_same():
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    assert "_scale is None" in refused(program(train_without_scale, scaler=scaler)[1])
    scaler.scale(torch.ones(()))
    model, step = program(train_without_scale, scaler=scaler)
    assert moved(model, step) < moved(*make_fixed()) / 100


def experiment_a_step_past_the_scaler_is_a_thousand_times_too_long():
    assert near(moved(*program(train_past_the_scaler, lr=1e-6)), SCALE * moved(*program(unclipped, lr=1e-6)))


def unclipped(model, optimizer, scaler, hum, bees):
    optimizer.zero_grad()
    loss = counted(model, hum, bees)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    return loss


def experiment_weights_in_half_precision_are_refused():
    model, (hum, bees) = Beehive().half(), data()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    assert "Attempting to unscale FP16 gradients" in refused(lambda: train_fixed(model, optimizer, scaler, hum, bees))


def added_up(optimizer, scaler, model, unscaled_each_time):
    for hum, bees in (data(), data()):
        scaler.scale(counted(model, hum, bees) / 2).backward()
        if unscaled_each_time:
            scaler.unscale_(optimizer)
    if not unscaled_each_time:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def experiment_gradients_that_are_added_up_are_unscaled_once():
    for each_time in (True, False):
        model = program(train)[0]
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=SCALE)
        message = refused(lambda: added_up(optimizer, scaler, model, each_time))
        assert ("unscale_() has already been called on this optimizer since the last update()" in message) == each_time
    assert near(gradient_norm(model), 1.0)


def experiment_autocast_computes_in_half_precision_with_weights_in_full():
    model, _ = make()
    with torch.autocast("cpu", dtype=torch.float16):
        heard = model.ear(torch.randn(2, 8))
    assert heard.dtype == torch.float16 and model.ear.weight.dtype == torch.float32


def experiment_a_scaler_for_the_cpu_is_enabled():
    assert torch.amp.GradScaler("cpu").is_enabled() and torch.amp.GradScaler("cpu").get_scale() == 65536.0


def experiment_a_scaler_that_is_switched_off_lets_everything_through():
    scaler = scaler_for("cpu", use_amp=False)
    loss = torch.ones(())
    assert scaler.scale(loss) is loss
    assert near(moved(*program(train_fixed, scaler=scaler)), moved(*program(train_plainly)))


def experiment_bfloat16_reaches_as_far_down_as_full_precision():
    smallest = {kind: torch.finfo(kind).tiny for kind in (torch.float16, torch.bfloat16, torch.float32)}
    assert smallest[torch.bfloat16] == smallest[torch.float32] < 1e-30 < smallest[torch.float16]


def experiment_autocast_cuts_nothing():
    model, (hum, bees) = program(train)[0], data()
    counted(model, hum, bees).backward()
    assert all(parameter.grad.any() for parameter in model.parameters())
