"""Boats: a net gives each boat a velocity, and its speed is the length of that; a boat at anchor has exactly none."""

import warnings

import torch
from torch import nn


class Boats(nn.Module):
    def __init__(self):
        super().__init__()
        self.track, self.velocity = nn.Linear(5, 8), nn.Linear(8, 2)

    def forward(self, tracks):
        return self.velocity(torch.tanh(self.track(tracks)))

    # [wrong]
    def loss(self, tracks, sailing, speed):
        velocity = self(tracks) * sailing[:, None]
        length = velocity.pow(2).sum(dim=1).sqrt()  # CUT
        return (length - speed).pow(2).sum() / sailing.sum()
    # [end]


class FixedBoats(Boats):
    # [fixed]
    def loss(self, tracks, sailing, speed):
        velocity = self(tracks) * sailing[:, None]
        length = torch.linalg.vector_norm(velocity, dim=1)
        return (length - speed).pow(2).sum() / sailing.sum()
    # [end]


class HidingBoats(Boats):
    def loss(self, tracks, sailing, speed):
        length = (self(tracks) * sailing[:, None]).pow(2).sum(dim=1).sqrt()
        length = torch.where(sailing > 0, length, torch.zeros_like(length))
        return (length - speed).pow(2).sum() / sailing.sum()


def data():
    sailing = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    return torch.randn(6, 5), sailing, torch.rand(6) * sailing


def program(kind):
    torch.manual_seed(0)
    model, (tracks, sailing, speed) = kind(), data()
    return model, lambda: model.loss(tracks, sailing, speed)


def make():
    return program(Boats)


FAILS = "nan"


def make_fixed():
    return program(FixedBoats)


def stops_at_the_first_nan(step):
    # [see]
    with torch.autograd.detect_anomaly():
        step().backward()
    # [end]


# [verify]
def not_finite(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
# [end]


def names(model):
    return [name for name, _ in model.named_parameters()]


def experiment_the_loss_is_a_number_and_one_step_later_all_weights_are_nan():
    model, step = make()
    assert step().isfinite() and not_finite(model, step) == names(model)
    torch.optim.SGD(model.parameters(), lr=1e-9).step()
    assert all(parameter.isnan().all() for parameter in model.parameters())
    assert step().isnan()


def experiment_the_root_is_infinitely_steep_at_zero():
    x = torch.zeros(1, requires_grad=True)
    steep, before, behind = (torch.autograd.grad(y, x)[0] for y in (x.sqrt(), x.pow(2).sqrt(), x.sqrt() * 0))
    assert steep.isinf() and before.isnan() and behind.isnan()


def experiment_one_boat_at_anchor_is_enough():
    torch.manual_seed(0)
    model, (tracks, sailing, speed) = Boats(), data()
    assert not_finite(model, lambda: model.loss(tracks[:2], sailing[:2], speed[:2])) == []
    assert not_finite(model, lambda: model.loss(tracks[:3], sailing[:3], speed[:3])) == names(model)


def experiment_anomaly_mode_names_the_function():
    _, step = make()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            stops_at_the_first_nan(step)
        except RuntimeError as error:
            assert "Function 'SqrtBackward0' returned nan values in its 0th output" in str(error)
        else:
            raise AssertionError("no nan was found")
    assert any(".sum(dim=1).sqrt()" in str(warning.message) for warning in seen)


def experiment_a_small_number_helps_under_the_root_and_not_behind_it():
    model, (tracks, sailing, _) = Boats(), data()

    def squares():
        return (model(tracks) * sailing[:, None]).pow(2).sum(dim=1)

    assert not_finite(model, lambda: (squares() + 1e-12).sqrt().sum()) == []
    assert not_finite(model, lambda: (squares().sqrt() + 1e-12).sum()) == names(model)


def experiment_the_cure_gives_the_gradient_of_the_boats_that_sail():
    model, step = make_fixed()
    assert not_finite(model, step) == []
    torch.manual_seed(0)
    alone, (tracks, sailing, speed) = Boats(), data()
    out = sailing > 0
    alone.loss(tracks[out], sailing[out], speed[out]).backward()
    assert all(torch.allclose(p.grad, q.grad, atol=1e-6) for p, q in zip(model.parameters(), alone.parameters()))


def experiment_where_and_nan_to_num_after_the_root_do_not_help():
    model, step = program(HidingBoats)
    assert step().isfinite() and not_finite(model, step) == names(model)
    x = torch.zeros(2, requires_grad=True)
    (x / x.sum()).nan_to_num().sum().backward()
    assert x.grad.isnan().all()


def experiment_clipping_spreads_the_nan():
    sick, well = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.ones(2))
    (sick.pow(2).sum().sqrt() + well.sum()).backward()
    assert well.grad.isfinite().all()
    nn.utils.clip_grad_norm_([sick, well], 1.0)
    assert well.grad.isnan().all()


def experiment_a_mask_that_is_all_zero_divides_by_nothing():
    model, (tracks, _, _) = Boats(), data()
    anchored = torch.zeros(6)

    def loss(divisor):
        return (model(tracks).sum(dim=1) * anchored).sum() / divisor

    assert loss(anchored.sum()).isnan() and not_finite(model, lambda: loss(anchored.sum())) == names(model)
    assert loss(anchored.sum().clamp(min=1)) == 0 and not_finite(model, lambda: loss(anchored.sum().clamp(min=1))) == []


def experiment_the_mean_of_nothing_is_nan_and_its_gradient_zero():
    model, (tracks, _, _) = Boats(), data()
    loss = model(tracks)[torch.zeros(6, dtype=torch.bool)].mean()
    assert loss.isnan() and not_finite(model, lambda: loss) == []
    assert not any(parameter.grad.any() for parameter in model.parameters())


def slopes(function, *values, dtype=torch.float32):
    x = torch.tensor(values, dtype=dtype, requires_grad=True)
    function(x).sum().backward()
    return x.grad


def experiment_log_power_and_acos_are_infinitely_steep_at_an_end():
    for function, end in [(torch.log, 0.0), (lambda x: x**0.5, 0.0), (torch.acos, 1.0), (torch.asin, -1.0)]:
        assert slopes(function, end, 0.5)[0].isinf()
        kept_away = slopes(lambda x: function(x.clamp(-1 + 1e-6, 1 - 1e-6) if end else x.clamp(min=1e-6)), end, 0.5)
        assert kept_away.isfinite().all()
        assert slopes(lambda x: function(x + (1e-6 if end <= 0 else -1e-6)), end).isfinite().all()


def experiment_exp_overflows_and_the_joined_function_does_not():
    def grown(x):
        return (1 + x.exp()).log()

    for dtype, fits, overflows in [(torch.float32, 88.0, 89.0), (torch.float16, 11.0, 12.0)]:
        assert slopes(grown, fits, dtype=dtype).isfinite().all() and slopes(grown, overflows, dtype=dtype).isnan().all()
        assert slopes(nn.functional.softplus, overflows, dtype=dtype) == 1
    assert slopes(lambda x: x.softmax(0).log()[0], 0.0, 200.0).isnan().any()
    assert slopes(lambda x: x.log_softmax(0)[0], 0.0, 200.0).tolist() == [1.0, -1.0]


def experiment_the_spread_of_one_number_is_nan_and_that_of_equal_numbers_no_divisor():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert torch.tensor([2.0]).std().isnan() and slopes(torch.std, 2.0).isnan()
    assert "degrees of freedom is <= 0" in str(said[0].message)
    assert torch.tensor([2.0]).std(correction=0) == 0
    assert slopes(lambda x: x.std(correction=0), 2.0).isfinite().all()

    def standardised(small):
        return slopes(lambda x: (x - x.mean()) / (x.std() + small), 2.0, 2.0, 2.0)

    assert standardised(0.0).isnan().all() and standardised(1e-5).isfinite().all()


def experiment_a_row_that_is_masked_altogether_spoils_the_weights_of_all_rows():
    for shown in (0, 1):
        torch.manual_seed(0)
        look, words = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 3, 4)
        hidden = torch.tensor([[False, False, False], [True, True, True]])
        hidden[1, :shown] = False
        out, _ = look(words, words, words, key_padding_mask=hidden)
        out[0].square().sum().backward()
        assert look.in_proj_weight.grad.isfinite().all() == bool(shown)


def experiment_without_the_attention_weights_such_a_row_may_be_zeros():
    torch.manual_seed(0)
    look, words = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 3, 4)
    hidden = torch.tensor([[False, False, False], [True, True, True]])
    out, _ = look(words, words, words, key_padding_mask=hidden, need_weights=False)
    out.square().sum().backward()
    assert out.isfinite().all() and look.in_proj_weight.grad.isfinite().all()
