"""Horses: a net on several machines tells the gait by the hoofbeats; the head for three gaits is still there, idle."""

from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel, distributed


class Herd(nn.Module):
    def forward(self, hoofbeats):
        return self.four_gaits(torch.tanh(self.ear(hoofbeats)))


class Horses(Herd):
    # [wrong]
    def __init__(self):
        super().__init__()
        self.ear = nn.Linear(6, 8)
        self.three_gaits = nn.Linear(8, 3)  # CUT
        self.four_gaits = nn.Linear(8, 4)
    # [end]


class FixedHorses(Herd):
    # [fixed]
    def __init__(self):
        super().__init__()
        self.ear = nn.Linear(6, 8)
        self.four_gaits = nn.Linear(8, 4)
    # [end]


class SilentHorses(Horses):
    def forward(self, hoofbeats):
        idle = sum(parameter.sum() for parameter in self.three_gaits.parameters())
        return super().forward(hoofbeats) + 0.0 * idle


def several_machines(model, **options):
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return DistributedDataParallel(model, **options)


def frozen_in_time():
    # [freeze]
    model = Horses()
    model.three_gaits.requires_grad_(False)
    model = several_machines(model)
    # [end]
    return model


def stepping(model):
    torch.manual_seed(1)
    hoofbeats, gait = torch.randn(9, 6), torch.randint(0, 4, (9,))
    return lambda: F.cross_entropy(model(hoofbeats), gait)


def program(kind, **options):
    torch.manual_seed(0)
    model = several_machines(kind(), **options)
    step = stepping(model)
    step().backward()
    model.zero_grad()
    return model, step


def make():
    return program(Horses)


FAILS = "step raises: Expected to have finished reduction in the prior iteration"


def make_fixed():
    return program(FixedHorses)


# [see]
def idle(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


# [verify]
def several_steps(model, step):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = step()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[-1] < losses[0]
# [end]


UNFINISHED = "Expected to have finished reduction in the prior iteration before starting a new one"
IDLE = ["three_gaits.weight", "three_gaits.bias"]


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    return ""


def experiment_the_first_pass_runs_and_the_second_raises():
    torch.manual_seed(0)
    model = several_machines(Horses())
    step = stepping(model)
    step().backward()
    assert UNFINISHED in refused(step)


def experiment_on_one_machine_the_same_net_trains():
    torch.manual_seed(0)
    model = Horses()
    assert several_steps(model, stepping(model))


def experiment_the_message_counts_trainable_parameters():
    model, step = make()
    line = next(line for line in refused(step).splitlines() if "did not receive grad for rank 0" in line)
    trainable = [name for name, parameter in model.module.named_parameters() if parameter.requires_grad]
    assert [trainable[int(number)] for number in line.split(":")[1].split()] == IDLE


def experiment_without_the_wrapping_the_idle_ones_are_listed():
    for kind, found in [(Horses, IDLE), (FixedHorses, [])]:
        model = kind()
        assert idle(model, stepping(model)) == found


def experiment_freezing_before_the_wrapping_cures_and_after_it_does_not():
    model = frozen_in_time()
    assert several_steps(model, stepping(model))
    late = several_machines(Horses())
    late.module.three_gaits.requires_grad_(False)
    step = stepping(late)
    step().backward()
    assert UNFINISHED in refused(step)


def experiment_the_cure_trains_and_its_gradients_are_those_of_one_machine():
    assert several_steps(*make_fixed())
    model, step = make_fixed()
    alone = FixedHorses()
    alone.load_state_dict(model.module.state_dict())
    step().backward()
    stepping(alone)().backward()
    assert all(torch.allclose(p.grad, q.grad) for p, q in zip(model.parameters(), alone.parameters()))


def experiment_finding_them_is_a_search_in_every_pass():
    for find, passes in [(True, 3), (False, 0)]:
        model, step = program(FixedHorses, find_unused_parameters=find)
        with mock.patch.object(distributed, "_find_tensors", wraps=distributed._find_tensors) as search:
            for _ in range(3):
                step().backward()
        assert search.call_count == passes


def experiment_finding_them_silences_a_head_that_should_have_learned():
    model, step = program(Horses, find_unused_parameters=True)
    assert several_steps(model, step)
    assert model.module.three_gaits.weight.grad is None


def experiment_zero_times_the_weights_lets_weight_decay_eat_them():
    for kind, stays in [(Horses, True), (SilentHorses, False)]:
        model, step = program(kind, find_unused_parameters=stays)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
        before = model.module.three_gaits.weight.detach().clone()
        step().backward()
        optimizer.step()
        assert torch.equal(model.module.three_gaits.weight, before) is stays
