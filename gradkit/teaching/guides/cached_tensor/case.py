"""A herbarium: photos are matched with written descriptions, which are read once and kept; validation came first."""

import torch
from torch import nn
from torch.nn import functional as F


class Herbarium(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.reader = nn.Linear(16, 8), nn.EmbeddingBag(60, 8)
        self.register_buffer("texts", torch.randint(0, 60, (5, 12)))
        self.kept = None

    # [wrong]
    def species(self):
        if self.kept is None:
            self.kept = self.reader(self.texts)  # CUT
        return self.kept
    # [end]

    def forward(self, photos):
        return self.eye(photos) @ self.species().T


class FixedHerbarium(Herbarium):
    # [fixed]
    def species(self):
        if torch.is_grad_enabled():
            self.kept = None
            return self.reader(self.texts)
        if self.kept is None:
            self.kept = self.reader(self.texts)
        return self.kept
    # [end]


@torch.no_grad()
def validate(model, photos, species):
    model.eval()
    right = (model(photos).argmax(dim=1) == species).float().mean().item()
    model.train()
    return right


def program(kind, validated=True):
    torch.manual_seed(0)
    model, photos, species = kind(), torch.randn(9, 16), torch.randint(0, 5, (9,))
    if validated:
        validate(model, photos, species)
    return model, lambda: F.cross_entropy(model(photos), species)


def make():
    return program(Herbarium)


FAILS = "partial"


def make_fixed():
    return program(FixedHerbarium)


# [see]
def kept_without_history(model):
    return [f"{path}.{name}".lstrip(".") for path, module in model.named_modules()
            for name, value in vars(module).items() if isinstance(value, torch.Tensor) and not value.requires_grad]
# [end]


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


def train(model, step, steps=20):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        step().backward()
        optimizer.step()


def refused(step):
    try:
        step().backward()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("backward ran")


def experiment_the_loss_falls_and_the_reader_stands_still():
    model, step = make()
    reader, first = model.reader.weight.clone(), step().item()
    train(model, step)
    assert step().item() < first and torch.equal(model.reader.weight, reader)


def experiment_if_all_else_is_frozen_backward_raises():
    model, step = make()
    model.eye.requires_grad_(False)
    assert "element 0 of tensors does not require grad and does not have a grad_fn" in refused(step)


def experiment_what_was_made_without_history_stays_so():
    model, _ = make()
    assert torch.is_grad_enabled() and model.reader.weight.requires_grad
    assert model.species().grad_fn is None


def experiment_the_kept_tensor_is_found():
    for maker, found in [(make, ["kept"]), (make_fixed, [])]:
        model, step = maker()
        step()
        assert kept_without_history(model) == found


def experiment_the_cure_trains_and_validates_on_the_weights_of_now():
    model, step = make_fixed()
    assert starved(model, step) == []
    train(model, step)
    validate(model, torch.randn(2, 16), torch.tensor([0, 1]))
    assert torch.equal(model.kept, model.reader(model.texts))
    assert starved(model, step) == []


def experiment_a_cache_filled_in_training_gives_another_error():
    _, step = program(Herbarium, validated=False)
    step().backward()
    assert "backward through the graph a second time" in refused(step)


def experiment_train_mode_does_not_empty_the_cache():
    model, step = make()
    model.train()
    assert starved(model, step) == ["reader.weight"]


def experiment_requires_grad_on_the_cache_does_not_reach_the_reader():
    model, step = make()
    model.kept.requires_grad_(True)
    assert starved(model, step) == ["reader.weight"]


def experiment_keeping_what_is_frozen_is_right():
    model, step = make()
    model.reader.requires_grad_(False)
    assert starved(model, step) == []
