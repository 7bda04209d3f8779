"""Programs that look suspicious and are sound: each trains for some steps and returns what it has trained."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

Program = Callable[[], Iterator[torch.Tensor]]


class LowRank(nn.Module):
    """A frozen layer with two small factors beside it. The second is zero at first: so is the first's gradient."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T


def a_low_rank_adapter() -> Iterator[torch.Tensor]:
    model = nn.Sequential(LowRank(nn.Linear(4, 4)), nn.ReLU(), nn.Dropout(0.3), LowRank(nn.Linear(4, 2)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for step in range(8):
        loss = model(torch.randn(5, 4)).square().mean() / 2
        loss.backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    yield from model.parameters()


def experts_that_few_batches_need() -> Iterator[torch.Tensor]:
    gate, experts = nn.Linear(3, 4), nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
    optimizer = torch.optim.Adam([*gate.parameters(), *experts.parameters()], fused=True)
    for _ in range(12):
        x = torch.randn(2, 3)
        weight, chosen = gate(x).softmax(-1).max(-1)
        loss = sum(weight[i] * experts[int(e)](x[i]).square().sum() for i, e in enumerate(chosen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    yield from experts.parameters()


def heads_by_turns_with_gradients_of_zero() -> Iterator[torch.Tensor]:
    trunk = nn.Linear(3, 4)
    heads = {"depth": nn.Linear(4, 1), "edges": nn.Linear(4, 2), "class": nn.Linear(4, 3)}
    optimizer = torch.optim.SGD([*trunk.parameters(), *(p for one in heads.values() for p in one.parameters())], lr=0.1)
    for step in range(14):
        head = list(heads.values())[step % 7 // 3]
        optimizer.zero_grad(set_to_none=False)
        head(trunk(torch.randn(2, 3)).relu()).square().sum().backward()
        optimizer.step()
    yield from trunk.parameters()


def an_auxiliary_loss_that_starts_late() -> Iterator[torch.Tensor]:
    body, main, aux = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)
    optimizer = torch.optim.RMSprop([*body.parameters(), *main.parameters(), *aux.parameters()])
    for step in range(15):
        share = max(0.0, (step - 8) / 10)
        hidden = body(torch.randn(4, 3)).tanh()
        loss = main(hidden).square().mean() + share * aux(hidden).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    yield from aux.parameters()


def a_head_on_a_backbone_that_nobody_froze() -> Iterator[torch.Tensor]:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))
    optimizer = torch.optim.SGD(model[3].parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        loss = F.cross_entropy(model(torch.randn(3, 1, 4, 4)), torch.randint(0, 2, (3,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    yield from model.state_dict().values()


def a_teacher_and_layers_that_thaw() -> Iterator[torch.Tensor]:
    student = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    teacher = copy.deepcopy(student).requires_grad_(False)
    student[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(student[1:].parameters())
    for step in range(9):
        if step == 5:
            optimizer.add_param_group({"params": list(student[0].requires_grad_().parameters())})
        x = torch.randn(3, 4)
        with torch.no_grad():
            target = teacher(x).softmax(-1)
        loss = F.kl_div(student(x).log_softmax(-1), target, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.lerp_(new, 0.1)
    yield from student.parameters()


def a_scaler_that_overflows_at_first() -> Iterator[torch.Tensor]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=4)
    for _ in range(8):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(4, 3) * 9).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    yield from model.parameters()


def lbfgs_with_a_closure() -> Iterator[torch.Tensor]:
    model, x, y = nn.Linear(3, 1), torch.randn(6, 3), torch.randn(6, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)
    yield from model.parameters()


def a_generator_and_a_discriminator() -> Iterator[torch.Tensor]:
    make, judge = nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Linear(4, 1)
    of_make, of_judge = torch.optim.Adam(make.parameters()), torch.optim.Adam(judge.parameters())
    for step in range(6):
        made = make(torch.randn(3, 2))
        loss = (judge(torch.randn(3, 4)) - 1).square().mean() + judge(made.detach()).square().mean()
        of_judge.zero_grad()
        loss.backward()
        of_judge.step()
        if step % 2:
            judge.requires_grad_(False)
            of_make.zero_grad()
            (judge(made) - 1).square().mean().backward()
            of_make.step()
            judge.requires_grad_(True)
    yield from (*make.parameters(), *judge.parameters())


def bad_batches_that_are_skipped() -> Iterator[torch.Tensor]:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(9):
        try:
            loss = model(torch.randn(2, 2)).mean() if step % 3 else torch.zeros(())
            optimizer.zero_grad()
            loss.backward()
        except RuntimeError:
            continue
        optimizer.step()
    yield from model.parameters()


def an_optimizer_for_each_task() -> Iterator[torch.Tensor]:
    slow = nn.Linear(2, 2)
    outer = torch.optim.Adam(slow.parameters())
    for _ in range(15):
        fast = copy.deepcopy(slow)
        inner = torch.optim.SGD(fast.parameters(), lr=0.1)
        for _ in range(2):
            inner.zero_grad()
            fast(torch.randn(2, 2)).square().sum().backward()
            inner.step()
        for one, other in zip(slow.parameters(), fast.parameters(), strict=True):
            one.grad = one.detach() - other.detach()
        outer.step()
    yield from slow.parameters()


def training_in_a_thread() -> Iterator[torch.Tensor]:
    model = nn.Linear(2, 2)

    def train() -> None:
        optimizer = torch.optim.Adagrad(model.parameters())
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).square().sum().backward()
            optimizer.step()

    worker = threading.Thread(target=train)
    worker.start()
    worker.join()
    yield from model.parameters()


def steps_that_are_taken_inside_of_backward() -> Iterator[torch.Tensor]:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    of = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        of[parameter].step()
        of[parameter].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(step)
    for _ in range(5):
        model(torch.randn(4, 2)).square().mean().backward()
    yield from model.parameters()


def an_optimizer_that_is_copied_and_restored() -> Iterator[torch.Tensor]:
    model = nn.Linear(2, 2)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters())
    for step in range(8):
        optimizer.zero_grad()
        model(torch.randn(3, 2)).square().sum().backward()
        optimizer.step()
        if step == 2:
            optimizer.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
        if step == 4:
            model, optimizer = copy.deepcopy((model, optimizer))
    yield from model.parameters()


def a_weight_that_a_staircase_lifts_late() -> Iterator[torch.Tensor]:
    body, main, aux = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *main.parameters(), *aux.parameters()], lr=0.1)
    for step in range(14):
        weight = min(1, step // 11)
        hidden = body(torch.randn(4, 3)).tanh()
        loss = main(hidden).square().mean() + weight * aux(hidden).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    yield from body.parameters()


def first_batches_without_a_label() -> Iterator[torch.Tensor]:
    model = nn.Linear(3, 4)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(14):
        labels = torch.full((5,), -100 if step < 7 else 1)
        loss = F.cross_entropy(model(torch.randn(5, 3)), labels, ignore_index=-100, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    yield from model.parameters()


PROGRAMS: tuple[Program, ...] = (
    a_weight_that_a_staircase_lifts_late, first_batches_without_a_label,
    a_low_rank_adapter, experts_that_few_batches_need, heads_by_turns_with_gradients_of_zero,
    an_auxiliary_loss_that_starts_late, a_head_on_a_backbone_that_nobody_froze, a_teacher_and_layers_that_thaw,
    a_scaler_that_overflows_at_first, lbfgs_with_a_closure, a_generator_and_a_discriminator,
    bad_batches_that_are_skipped, an_optimizer_for_each_task, training_in_a_thread,
    steps_that_are_taken_inside_of_backward, an_optimizer_that_is_copied_and_restored,
)  # fmt: skip
