"""A reef: fish are measured on photos, but few photos come with a length, and some batches hold none."""

import torch
from torch import nn


class FishLength(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.ruler = nn.Linear(12, 8), nn.Linear(8, 1)

    def forward(self, photos):
        return self.ruler(torch.tanh(self.eye(photos))).squeeze(-1)

    # [wrong]
    def loss(self, photos, lengths):
        known = ~lengths.isnan()
        error = (self(photos) - lengths)[known].abs()
        if len(error) == 0:
            return torch.tensor(0.0)  # CUT
        return error.mean()
    # [end]


class FixedFishLength(FishLength):
    # [fixed]
    def loss(self, photos, lengths):
        known = ~lengths.isnan()
        error = (self(photos) - lengths)[known].abs()
        if len(error) == 0:
            return None
        return error.mean()
    # [end]


def in_metres():
    torch.manual_seed(0)
    fish, scale, (photos, lengths) = FishLength(), nn.ParameterList([torch.tensor(2.0)]), reef()[1]
    fish.requires_grad_(False)
    return nn.ModuleList([fish, scale]), lambda metre: (metre * fish(photos) - lengths).nanmean().abs()


# [verify]
def train(model, batches, optimizer):
    for photos, lengths in batches:
        optimizer.zero_grad()
        loss = model.loss(photos, lengths)
        if loss is None:
            continue
        loss.backward()
        optimizer.step()
# [end]


def reef():
    nothing, some = torch.full((4,), torch.nan), torch.tensor([0.3, torch.nan, 0.7, torch.nan])
    return [(torch.rand(4, 12), lengths) for lengths in (nothing, some)]


def program(kind):
    torch.manual_seed(0)
    model, batches = kind(), reef()

    def step():
        losses = (model.loss(photos, lengths) for photos, lengths in batches)
        return next(loss for loss in losses if loss is not None)

    return model, step


def make():
    return program(FishLength)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedFishLength)


def make_without():
    model, loss = in_metres()
    metre = model[1][0].item()
    return model, lambda: loss(metre)


def look_at(model, batches):
    # [see]
    for number, (photos, lengths) in enumerate(batches):
        loss = model.loss(photos, lengths)
        print(number, loss.item(), loss.grad_fn)
    # [end]
    return loss


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def warmed_up():
    model = make_fixed()[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train(model, 3 * reef()[1:], optimizer)
    optimizer.zero_grad()
    return model, optimizer


def experiment_the_first_batch_without_a_label_raises():
    model, step = make()
    assert model.loss(*reef()[1]).requires_grad
    try:
        step().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_only_the_constant_has_no_grad_fn():
    loss = look_at(make()[0], reef())
    assert loss.grad_fn is not None
    assert make()[1]().grad_fn is None


def experiment_a_skipped_batch_moves_nothing():
    model, optimizer = warmed_up()
    before = weights(model)
    train(model, reef()[:1], optimizer)
    assert torch.equal(weights(model), before)


def experiment_a_mixed_epoch_trains():
    model, step = make_fixed()
    first = step().item()
    train(model, 20 * reef(), torch.optim.Adam(model.parameters(), lr=0.01))
    assert step().item() < first


def experiment_batches_without_a_label_can_be_left_out_in_the_data():
    model = make()[0]
    scored = [(photos, lengths) for photos, lengths in reef() if not lengths.isnan().all()]
    assert 0 < len(scored) < len(reef())
    assert all(model.loss(photos, lengths).requires_grad for photos, lengths in scored)


def experiment_zero_times_the_output_still_moves_the_weights():
    model, optimizer = warmed_up()
    before = weights(model)
    (0.0 * model(reef()[0][0]).sum()).backward()
    optimizer.step()
    assert not torch.equal(weights(model), before)


def experiment_zero_times_infinity_is_nan():
    model = make()[0]
    loss = 0.0 * (model(reef()[0][0]) / torch.tensor([1.0, 1.0, 1.0, 0.0])).sum()
    loss.backward()
    assert loss.isnan() and all(parameter.grad.isnan().all() for parameter in model.parameters())


def experiment_requires_grad_true_teaches_nothing():
    model = make()[0]
    torch.tensor(0.0, requires_grad=True).backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def experiment_a_constant_start_of_a_sum_is_fine():
    model = make()[0]
    total = torch.tensor(0.0)
    total = total + model.loss(*reef()[1])
    total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def experiment_a_constant_term_teaches_nothing():
    gradients = []
    for share in (0.0, 10.0):
        model = make()[0]
        photos, lengths = reef()[1]
        (model.loss(photos, lengths) + share * model(photos).detach().square().mean()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(map(torch.equal, *gradients))


def experiment_a_number_that_was_taken_before_leads_to_no_weight():
    model, loss = in_metres()
    metre = model[1][0]
    assert loss(metre.item()).grad_fn is None
    loss(metre).backward()
    assert metre.grad != 0
