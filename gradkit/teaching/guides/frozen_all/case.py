"""Bird song: a pretrained listener gets a new head for six species, and everything is frozen one line too late."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class BirdSong(nn.Module):
    def __init__(self):
        super().__init__()
        self.listener = nn.Sequential(nn.Conv1d(1, 4, 5), nn.Tanh(), nn.AdaptiveAvgPool1d(3), nn.Flatten())
        self.head = nn.Linear(12, 40)

    def forward(self, clips):
        return self.head(self.listener(clips))


def build():
    # [wrong]
    model = BirdSong()
    model.head = nn.Linear(12, 6)
    model.requires_grad_(False)  # CUT
    # [end]
    return model


def build_fixed():
    # [fixed]
    model = BirdSong()
    model.requires_grad_(False)
    model.head = nn.Linear(12, 6)
    # [end]
    return model


KINDS = ["song.kinds.weight", "song.kinds.bias"]


class Recorder(nn.Module):
    def __init__(self):
        super().__init__()
        self.song = nn.ModuleDict({"ear": BirdSong(), "kinds": nn.Linear(40, 6)})

    def forward(self, clips):
        return self.song.kinds(self.song.ear(clips))


def freeze_all_but_the_kinds(model):
    for name, parameter in model.named_parameters():
        if not name.startswith("kinds"):
            parameter.requires_grad_(False)


def program(build):
    torch.manual_seed(0)
    model, clips, species = build(), torch.randn(8, 1, 64), torch.randint(0, 6, (8,))
    return model, lambda: F.cross_entropy(model(clips), species)


def make():
    return program(build)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(build_fixed)


def make_copied():
    torch.manual_seed(0)
    teacher, clips = BirdSong(), torch.randn(8, 1, 64)
    teacher.requires_grad_(False)
    student = copy.deepcopy(teacher)
    return student, lambda: F.mse_loss(student(clips), teacher(clips).softmax(1))


def make_unspared():
    model, step = program(Recorder)
    freeze_all_but_the_kinds(model)
    step.should_train = ["song.kinds.*"]
    return model, step


def twice_heard(model, clips, noise, species, thaw=False):
    model.listener.requires_grad_(True)
    clean = F.cross_entropy(model(clips), species)
    model.listener.requires_grad_(False)
    noisy = F.cross_entropy(model(clips + noise), species)
    if thaw:
        model.listener.requires_grad_(True)
    return clean + noisy


def heard_and_kept(model, clips, noise, species):
    with torch.no_grad():
        heard = model.listener(clips + noise)
    return F.cross_entropy(model(clips), species) + F.cross_entropy(model.head(heard), species)


def make_midway(loss=twice_heard, **options):
    torch.manual_seed(0)
    model, clips, species = BirdSong(), torch.randn(8, 1, 64), torch.randint(0, 40, (8,))
    noise = 0.1 * torch.randn(8, 1, 64)
    return model, lambda: loss(model, clips, noise, species, **options)


# [see]
def trainable(model):
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]
# [end]


# [verify]
def moved(model, step):
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step().backward()
    optimizer.step()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
# [end]


def experiment_no_flag_is_left_and_backward_raises():
    model, step = make()
    assert trainable(model) == []
    try:
        step().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_one_trainable_bias_is_enough():
    model, step = make()
    model.head.bias.requires_grad_(True)
    loss = step()
    assert loss.requires_grad and loss.grad_fn is not None


def experiment_the_optimizer_accepts_frozen_parameters():
    model, _ = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert len(optimizer.param_groups[0]["params"]) == len(list(model.parameters()))


def experiment_only_the_head_moves_once_it_is_fixed():
    model, step = make_fixed()
    assert trainable(model) == ["head.weight", "head.bias"]
    assert moved(model, step) == ["head.weight", "head.bias"]


def experiment_train_and_eval_never_touch_the_flags():
    model, step = make()
    assert not model.train()(torch.randn(1, 1, 64)).requires_grad
    model, step = make_fixed()
    model.eval()
    assert step().requires_grad


def experiment_setting_the_attribute_on_a_module_does_nothing():
    model, step = make()
    model.requires_grad = True
    assert trainable(model) == [] and not step().requires_grad


def experiment_a_loss_forced_to_require_grad_teaches_nothing():
    model, step = make()
    step().requires_grad_(True).backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def experiment_a_copy_of_what_is_frozen_is_frozen():
    student, step = make_copied()
    assert trainable(student) == []
    student.requires_grad_(True)
    assert "head.weight" in trainable(student) and step().requires_grad


def experiment_names_begin_with_the_module_that_holds_all():
    model, _ = make_unspared()
    assert trainable(model) == []
    assert [name for name, _ in model.named_parameters() if name.startswith("song.kinds")] == KINDS


def gradients(model, step):
    step().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def experiment_backward_fills_only_what_is_trainable_by_then():
    starved = [name for name, grad in gradients(*make_midway()).items() if grad is None]
    assert starved == ["listener.0.weight", "listener.0.bias"]
    thawed, kept = gradients(*make_midway(thaw=True)), gradients(*make_midway(heard_and_kept))
    assert all(torch.allclose(grad, kept[name]) and grad.any() for name, grad in thawed.items())
