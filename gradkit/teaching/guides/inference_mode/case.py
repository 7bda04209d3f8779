"""A board game: one method values positions, for choosing a move and for learning; it was made fast for the first."""

import torch
from torch import nn
from torch.nn import functional as F


class Player(nn.Module):
    def __init__(self):
        super().__init__()
        self.look, self.judge = nn.Linear(9, 16), nn.Linear(16, 1)

    # [wrong]
    def value(self, boards):
        with torch.inference_mode():  # CUT
            return self.judge(torch.tanh(self.look(boards))).squeeze(-1)

    def choose(self, boards):
        return self.value(boards).argmax().item()
    # [end]

    def forward(self, boards, outcomes):
        return F.mse_loss(self.value(boards), outcomes)


class FixedPlayer(Player):
    # [fixed]
    def value(self, boards):
        return self.judge(torch.tanh(self.look(boards))).squeeze(-1)

    def choose(self, boards):
        with torch.inference_mode():
            return self.value(boards).argmax().item()
    # [end]


def program(kind):
    torch.manual_seed(0)
    player, boards, outcomes = kind(), torch.randint(-1, 2, (10, 9)).float(), torch.rand(10)
    return player, lambda: player(boards, outcomes)


def make():
    return program(Player)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedPlayer)


def look_at(player, boards):
    # [see]
    value = player.value(boards)
    print(value.is_inference(), value.requires_grad, value.grad_fn)
    # [end]
    return value


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


def message(attempt):
    try:
        attempt()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def experiment_backward_raises():
    _, step = make()
    assert "element 0 of tensors does not require grad" in message(lambda: step().backward())


def experiment_a_trainable_layer_refuses_the_tensor():
    model, _ = make()
    scale = nn.Linear(10, 1)
    value = model.value(torch.zeros(10, 9))
    assert "Inference tensors cannot be saved for backward" in message(lambda: scale(value))


def experiment_inference_tensors_say_so_and_no_grad_ones_do_not():
    model, _ = make()
    assert look_at(model, torch.zeros(1, 9)).is_inference()
    with torch.no_grad():
        assert not model.look(torch.zeros(1, 9)).is_inference()


def experiment_the_cure_trains_everything_and_still_plays():
    model, step = make_fixed()
    assert starved(model, step) == []
    assert model.choose(torch.zeros(3, 9)) in range(3)


def experiment_enable_grad_lifts_no_grad_but_not_inference_mode():
    model, _ = make_fixed()
    with torch.no_grad(), torch.enable_grad():
        assert model.look(torch.zeros(1, 9)).requires_grad
    with torch.inference_mode(), torch.enable_grad():
        assert not model.look(torch.zeros(1, 9)).requires_grad


def experiment_clone_gives_a_normal_tensor_without_a_past():
    model, _ = make()
    copy = model.value(torch.zeros(1, 9)).clone()
    assert not copy.is_inference() and copy.grad_fn is None
    copy.requires_grad_(True).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def experiment_eval_is_not_inference_mode():
    model, step = make_fixed()
    model.eval()
    assert not torch.is_inference_mode_enabled() and step().requires_grad
