"""River levels: the helper that takes the usual level off the gauges switches autograd off, and leaves it off."""

import threading

import torch
from torch import nn


class River(nn.Module):
    def __init__(self):
        super().__init__()
        self.gauges, self.level = nn.Linear(5, 8), nn.Linear(8, 1)

    # [wrong]
    def usual(self, history):
        torch.set_grad_enabled(False)  # CUT
        return history.mean(dim=0)
    # [end]

    def forward(self, history):
        unusual = history - self.usual(history)
        return self.level(torch.tanh(self.gauges(unusual)))


class FixedRiver(River):
    # [fixed]
    def usual(self, history):
        with torch.no_grad():
            return history.mean(dim=0)
    # [end]


def program(kind):
    torch.manual_seed(0)
    model, history, tomorrow = kind(), torch.rand(14, 5), torch.rand(14, 1)
    return model, lambda: (model(history) - tomorrow).pow(2).mean()


def make():
    return program(River)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedRiver)


def switch_seen(model, history):
    # [see]
    print(torch.is_grad_enabled())
    model.usual(history)
    print(torch.is_grad_enabled())
    # [end]
    return not torch.is_grad_enabled()


# [verify]
def leaves_the_switch_alone(step):
    before = torch.is_grad_enabled()
    loss = step()
    return torch.is_grad_enabled() == before and loss.requires_grad
# [end]


def experiment_backward_raises():
    _, step = make()
    with torch.enable_grad():
        loss = step()
    try:
        loss.backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_the_switch_outlives_the_function_and_kills_other_models():
    model, _ = make()
    with torch.enable_grad():
        assert switch_seen(model, torch.rand(3, 5))
        assert not nn.Linear(2, 2)(torch.ones(2)).requires_grad


def experiment_an_exception_leaves_it_off_but_a_block_restores_it():
    with torch.enable_grad():
        try:
            torch.set_grad_enabled(False)
            raise OSError("the gauge file is missing")
            torch.set_grad_enabled(True)
        except OSError:
            assert not torch.is_grad_enabled()
    with torch.enable_grad():
        with torch.set_grad_enabled(False):
            assert not torch.is_grad_enabled()
        assert torch.is_grad_enabled()


def experiment_the_cure_leaves_the_switch_alone():
    with torch.enable_grad():
        assert not leaves_the_switch_alone(make()[1])
    with torch.enable_grad():
        assert leaves_the_switch_alone(make_fixed()[1])


def experiment_flags_and_train_mode_have_no_say():
    model, step = make()
    with torch.enable_grad():
        model.train().requires_grad_(True)
        assert not step().requires_grad


def experiment_a_forced_loss_trains_nothing():
    model, step = make()
    with torch.enable_grad():
        step().requires_grad_(True).backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def experiment_another_thread_has_its_own_switch():
    seen = []
    with torch.enable_grad():
        torch.set_grad_enabled(False)
        thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]
