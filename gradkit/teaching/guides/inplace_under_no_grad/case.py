"""A panorama: each photo is straightened by a net and pasted into an empty canvas; pasting is copying, so no_grad."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class Panorama(nn.Module):
    def __init__(self):
        super().__init__()
        self.lens, self.place = nn.Linear(8, 8), nn.Linear(20, 4)

    # [wrong]
    def paste(self, photos):
        canvas = torch.zeros(photos.shape[1], 20)
        straight = torch.tanh(self.lens(photos))
        with torch.no_grad():
            for left, photo in zip((0, 6, 12), straight):
                canvas[:, left : left + 8] = photo  # CUT
        return canvas
    # [end]

    def forward(self, photos):
        return self.place(self.paste(photos))


class FixedPanorama(Panorama):
    # [fixed]
    def paste(self, photos):
        canvas = torch.zeros(photos.shape[1], 20)
        straight = torch.tanh(self.lens(photos))
        for left, photo in zip((0, 6, 12), straight):
            canvas[:, left : left + 8] = photo
        return canvas
    # [end]


class FlaggedPanorama(Panorama):
    def paste(self, photos):
        canvas = torch.zeros(photos.shape[1], 20, requires_grad=True)
        with torch.no_grad():
            canvas[:, :8] = torch.tanh(self.lens(photos))[0]
        self.canvas = canvas
        return canvas


class WaryPanorama(FixedPanorama):
    def paste(self, photos):
        # [allocate]
        with torch.no_grad():
            canvas = torch.zeros(photos.shape[1], 20)
        # [end]
        for left, photo in zip((0, 6, 12), torch.tanh(self.lens(photos))):
            canvas[:, left : left + 8] = photo
        return canvas


def program(kind):
    torch.manual_seed(0)
    model, photos, places = kind(), torch.randn(3, 9, 8), torch.randint(0, 4, (9,))
    return model, lambda: F.cross_entropy(model(photos), places)


def make():
    return program(Panorama)


FAILS = "partial"


def make_fixed():
    return program(FixedPanorama)


def look_at(model, photos):
    # [see]
    canvas = model.paste(photos)
    print(canvas.requires_grad, canvas.grad_fn)
    # [end]
    return canvas


# [gather]
def gather(mine):
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    parts[dist.get_rank()] = mine
    return torch.cat(parts)
# [end]


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


LENS = ["lens.weight", "lens.bias"]


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it ran")


def experiment_the_place_learns_and_the_lens_never_moves():
    model, step = make()
    optimizer, first, lens = torch.optim.SGD(model.parameters(), lr=0.1), step().item(), model.lens.weight.clone()
    for _ in range(20):
        assert starved(model, step) == LENS
        optimizer.step()
    assert step().item() < first and torch.equal(model.lens.weight, lens)


def experiment_with_a_frozen_place_backward_raises():
    model, step = make()
    model.place.requires_grad_(False)
    message = refused(lambda: step().backward())
    assert "element 0 of tensors does not require grad and does not have a grad_fn" in message


def experiment_the_numbers_are_right_and_the_history_is_missing():
    photos = torch.randn(3, 2, 8)
    wrong, right = look_at(make()[0], photos), look_at(make_fixed()[0], photos)
    assert torch.equal(wrong, right)
    assert wrong.grad_fn is None and "CopySlices" in str(right.grad_fn)


def experiment_every_way_of_writing_is_a_computation():
    value, row = nn.Parameter(torch.ones(3)) * 2, torch.tensor([0])
    writes = [
        lambda t: t.copy_(value),
        lambda t: t.add_(value),
        lambda t: t.index_copy_(0, row, value[:1]),
    ]
    for write in writes:
        recorded, lost = torch.zeros(3), torch.zeros(3)
        write(recorded)
        with torch.no_grad():
            write(lost)
        assert recorded.requires_grad and not lost.requires_grad


def experiment_on_a_tensor_with_a_history_the_gradient_is_wrong_and_nothing_is_missing():
    x = nn.Parameter(torch.ones(3))
    y = x * 2
    with torch.no_grad():
        y.mul_(10)
    y.sum().backward()
    assert torch.equal(y, torch.full((3,), 20.0)) and torch.equal(x.grad, torch.full((3,), 2.0))


def experiment_all_gather_writes_without_a_history():
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mine = nn.Parameter(torch.ones(3)) * 2
    parts = [torch.empty(3)]
    dist.all_gather(parts, mine)
    assert torch.equal(parts[0], mine) and not parts[0].requires_grad
    assert gather(mine).requires_grad


def experiment_the_cure_feeds_the_lens():
    model, step = make_fixed()
    assert starved(model, step) == []
    assert all(parameter.grad.any() for parameter in model.lens.parameters())


def experiment_a_flag_on_the_canvas_keeps_the_gradient_for_itself():
    model, step = program(FlaggedPanorama)
    assert starved(model, step) == LENS
    assert model.canvas.is_leaf and model.canvas.grad.any()


def experiment_with_recording_on_the_flag_raises():
    canvas = torch.zeros(2, requires_grad=True)
    message = refused(lambda: canvas.__setitem__(0, canvas.new_ones(())))
    assert "a view of a leaf Variable that requires grad is being used in an in-place operation" in message


def experiment_making_the_canvas_under_no_grad_is_harmless():
    assert starved(*program(WaryPanorama)) == []


def experiment_writing_into_a_parameter_under_no_grad_is_right():
    model, step = make_fixed()
    with torch.no_grad():
        model.lens.weight.copy_(torch.eye(8))
    assert model.lens.weight.is_leaf and starved(model, step) == []


def experiment_data_writes_without_a_history_too():
    canvas, value = torch.zeros(3), nn.Parameter(torch.ones(3)) * 2
    canvas.data[:] = value
    assert not canvas.requires_grad and canvas.sum() == 6
