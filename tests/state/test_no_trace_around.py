"""A diagnosis leaves nothing behind beside the model: in generators, schedulers, containers, objects, begun data."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import random
import types
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset
from transformers import DynamicCache

import gradkit
from tests.telling import told

Kept = Callable[[], tuple[nn.Module, Callable[[], Any], Callable[[], Any]]]
KEPT: dict[str, Kept] = {}


def kept(found: Kept) -> Kept:
    """Enter a program: (model, step, what must read the same before and after)."""
    KEPT[found.__name__] = found
    return found


def small() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), torch.randn(6, 4)


RUNS = 6
"""How often a step with a cut is run: as it is, with the cut undone, and three times in a row to try the change, beside
once as it is."""


def anew(given: SimpleQueue[Any]) -> list[Any]:
    """What the runs told that began anew."""
    all_told = told(given)
    return [all_told[number] for number in (0, 1, 2, 5)]


def cut(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A loss with a cut in it."""
    return model[1](model[0](x).detach()).sum()


# -- random generators ------------------------------------------------------------------------------------------------


def generators() -> dict[str, Any]:
    return {
        "torch": torch.Generator().manual_seed(1), "numpy": np.random.default_rng(1), "python": random.Random(1),
        "twister": np.random.Generator(np.random.MT19937(1)), "legacy": np.random.RandomState(1),
    }  # fmt: skip


def draw(of: dict[str, Any]) -> float:
    return float(
        torch.rand(1, generator=of["torch"]) + of["numpy"].random() + of["legacy"].rand() + of["twister"].random()
    ) + of["python"].random()  # fmt: skip


def states(of: dict[str, Any]) -> list[str]:
    return [
        str(of["torch"].get_state().tolist()), str(of["numpy"].bit_generator.state), str(of["legacy"].get_state()),
        str(of["twister"].bit_generator.state), str(of["python"].getstate()),
    ]  # fmt: skip


@kept
def generators_in_the_closure() -> Any:
    (model, x), made = small(), generators()
    return model, lambda: cut(model, x) * draw(made), lambda: states(made)


GLOBAL = generators()


@kept
def generators_in_global_variables() -> Any:
    model, x = small()
    return model, lambda: cut(model, x) * draw(GLOBAL), lambda: states(GLOBAL)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.of = nn.Linear(4, 1), generators()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * draw(self.of)


@kept
def generators_in_a_module_inside() -> Any:
    model, x = nn.Sequential(nn.Linear(4, 4), Noisy()), torch.randn(6, 4)
    return model, lambda: cut(model, x), lambda: states(model[1].of)


class Slotted:
    __slots__ = ("__hidden", "count", "of")

    def __init__(self) -> None:
        self.of, self.count, self.__hidden = generators(), 0, 0

    def noise(self) -> float:
        self.count += 1
        self.__hidden += 1
        self.late = 1
        return draw(self.of)

    __slots__ += ("late",)

    def look(self) -> Any:
        return states(self.of), self.count, self.__hidden, hasattr(self, "late")


@kept
def generators_in_an_object_with_slots() -> Any:
    (model, x), source = small(), Slotted()
    return model, lambda: cut(model, x) * source.noise(), source.look


@kept
def generators_of_a_loader_and_its_sampler() -> Any:
    model, _ = small()
    data = TensorDataset(torch.randn(12, 4))
    mine, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    loader = DataLoader(data, 6, sampler=RandomSampler(data, generator=mine), generator=theirs)
    return (
        model,
        lambda: sum(cut(model, x) for (x,) in loader),
        lambda: (mine.get_state().tolist(), theirs.get_state().tolist()),
    )


class Jittered(Dataset):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.rng, self.served = np.random.default_rng(1), 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        self.served += 1
        return torch.tensor(self.rng.normal(size=4), dtype=torch.float32)


@kept
def a_generator_and_a_counter_of_a_dataset() -> Any:
    (model, _), data = small(), Jittered()
    loader = DataLoader(data, 6)
    return (
        model,
        lambda: cut(model, next(iter(loader))),
        lambda: (str(data.rng.bit_generator.state), data.served),
    )


# -- optimizers, schedulers, scalers, averages ------------------------------------------------------------------------


def trained(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda opt: StepLR(opt, 1, 0.5),
    "CosineAnnealingLR": lambda opt: CosineAnnealingLR(opt, 10),
    "LambdaLR": lambda opt: LambdaLR(opt, lambda epoch: 0.9**epoch),
    "OneCycleLR": lambda opt: OneCycleLR(opt, 0.1, total_steps=10),
    "ReduceLROnPlateau": lambda opt: ReduceLROnPlateau(opt, patience=0),
    "SequentialLR": lambda opt: SequentialLR(opt, [StepLR(opt, 1, 0.5), CosineAnnealingLR(opt, 9)], [1]),
}


def of_scheduler(scheduler: Any) -> str:
    state = {key: value for key, value in vars(scheduler).items() if key not in ("optimizer", "_schedulers")}
    inner = [of_scheduler(one) for one in getattr(scheduler, "_schedulers", ())]
    return str((state, inner))


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning")
def test_a_scheduler_stands_where_it_stood(name: str) -> None:
    model, x = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[name](optimizer)

    def step() -> torch.Tensor:
        loss = trained(model, x, optimizer)
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
        return loss

    def look() -> Any:
        attributes = {key: value for key, value in vars(optimizer).items() if key not in ("state", "param_groups")}
        return of_scheduler(scheduler), optimizer.state_dict()["param_groups"], str(attributes), len(optimizer.state)

    before = copy.deepcopy(look())
    gradkit.diagnose(step, model=model)
    assert look() == before


@kept
def the_history_that_lbfgs_keeps() -> Any:
    model, x = small()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.step(closure)

    def look() -> Any:
        entries = next(iter(optimizer.state.values()))
        return str(dict(entries))

    def step() -> torch.Tensor:
        optimizer.step(closure)
        return model(x).sum()

    return model, step, look


@kept
def a_gradient_scaler_that_was_used_already() -> Any:
    model, x = small()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", growth_interval=2)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    step()
    return model, step, lambda: (scaler.state_dict(), str(dict(scaler._per_optimizer_states)))


@kept
def a_gradient_scaler_that_is_new() -> Any:
    model, x = small()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step, lambda: (scaler.state_dict(), scaler._scale, str(dict(scaler._per_optimizer_states)))


def values(module: nn.Module) -> list[Any]:
    return [value.tolist() for value in module.state_dict().values()]


@kept
def an_averaged_model() -> Any:
    model, x = small()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    average.update_parameters(model)

    def step() -> torch.Tensor:
        with torch.no_grad():
            model[0].weight.mul_(0.5)
        average.update_parameters(model)
        return cut(model, x)

    return model, step, lambda: values(average)


class Ema:
    """As timm and many scripts keep it: an object that is no module and holds one."""

    def __init__(self, model: nn.Module) -> None:
        self.module, self.updates = copy.deepcopy(model).requires_grad_(False), 0
        self.shadow = {name: value.clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        for name, value in model.state_dict().items():
            self.shadow[name] = 0.9 * self.shadow[name] + value
        for mine, theirs in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            mine.copy_(mine * 0.5 + theirs)


@kept
def an_average_in_an_object_that_is_no_module() -> Any:
    (model, x), state = small(), types.SimpleNamespace()
    state.ema = Ema(model)

    def step() -> torch.Tensor:
        state.ema.update(model)
        return cut(model, x)

    return model, step, lambda: (
        state.ema.updates, values(state.ema.module), [v.tolist() for v in state.ema.shadow.values()],
    )  # fmt: skip


class Judge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(1, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x))


def flags(module: nn.Module) -> list[Any]:
    return [(p.requires_grad, p.tolist(), p.grad if p.grad is None else p.grad.tolist()) for p in module.parameters()]


@kept
def a_second_model_that_is_frozen_trained_and_runs_later() -> Any:
    (model, x), judge = small(), Judge()
    optimizer = torch.optim.SGD(judge.parameters(), lr=0.1)
    judge(torch.ones(2, 1)).sum().backward()

    def step() -> torch.Tensor:
        optimizer.step()
        judge.requires_grad_(False)
        judge.outer.requires_grad_(True)
        return judge(model(x)).sum()

    return model, step, lambda: flags(judge)


def test_the_gradients_of_another_model_are_there_in_every_run() -> None:
    (model, x), judge, norms = small(), Judge(), SimpleQueue()  # type: ignore[var-annotated]
    judge(torch.ones(2, 1)).sum().backward()

    def step() -> torch.Tensor:
        norms.put(judge.inner.weight.grad.sum().item())
        loss = judge(cut(model, x)[None, None]).sum()
        loss.backward()
        return loss

    gradkit.diagnose(step, model=model)
    first, second = told(norms)
    assert first == second != 0


# -- containers, objects, names ---------------------------------------------------------------------------------------


@kept
def containers_of_every_kind_in_the_closure() -> Any:
    model, x = small()
    ring: deque[int] = deque([1, 2, 3], maxlen=3)
    counts, groups, order, seen = Counter("aab"), defaultdict(list, a=[1]), OrderedDict(a=1, b=2), {1, 2}
    nested: dict[str, Any] = {"runs": [{"losses": [0.5]}]}

    def step() -> torch.Tensor:
        ring.append(9)
        counts["c"] += 1
        groups["b"].append(1)
        groups["a"].append(2)
        order.move_to_end("a")
        seen.add(3)
        nested["runs"][0]["losses"].append(1.0)
        return cut(model, x)

    return model, step, lambda: str((ring, counts, groups, order, seen, nested))


@dataclass
class Progress:
    count: int = 0
    best: float = 9.0
    history: list[float] = field(default_factory=list)


class Trainer:
    total = 0
    log: list[int] = []  # noqa: RUF012

    def __init__(self, model: nn.Module, x: torch.Tensor) -> None:
        self.model, self.x, self.progress, self.calls = model, x, Progress(), 0

    def step(self) -> torch.Tensor:
        Trainer.total += 1
        self.log.append(self.total)
        self.calls += 1
        self.progress.count += 1
        self.progress.history.append(0.1)
        self.late = torch.ones(1)
        return cut(self.model, self.x)


@kept
def an_object_that_counts_and_the_class_that_it_is_of() -> Any:
    model, x = small()
    trainer = Trainer(model, x)
    return (
        model,
        trainer.step,
        lambda: str(
            (trainer.progress, trainer.calls, Trainer.total, Trainer.log, sorted(vars(trainer))),
        ),
    )


COUNT = 0


@kept
def names_that_a_step_binds_anew() -> Any:
    (model, x), count, unset = small(), 0, None

    def step() -> torch.Tensor:
        global COUNT
        nonlocal count, unset
        COUNT += 1
        count += 1
        unset = model(x)
        step.calls = getattr(step, "calls", 0) + 1  # type: ignore[attr-defined]
        return cut(model, x) * count

    return model, step, lambda: (COUNT, count, unset, vars(step))


@kept
def a_default_argument_that_remembers() -> Any:
    model, x = small()

    def remembered(value: int, memory: list[int] = []) -> int:  # noqa: B006
        memory.append(value)
        return len(memory)

    return (
        model,
        lambda: cut(model, x) * remembered(1),
        lambda: remembered.__defaults__ and list(remembered.__defaults__[0]),
    )


@kept
def a_cache_of_a_function() -> Any:
    model, x = small()

    @functools.lru_cache
    def features() -> torch.Tensor:
        return model[0](x)

    return model, lambda: model[1](features().detach()).sum(), lambda: features.cache_info().currsize


@kept
def what_a_hook_collects() -> Any:
    (model, x), features = small(), {}
    grads: list[torch.Tensor] = []
    model[0].register_forward_hook(lambda _m, _i, out: features.update(a=out))
    model[1].weight.register_hook(grads.append)
    return model, lambda: cut(model, x), lambda: (list(features), grads)


@kept
def a_partial_and_a_method_of_an_object() -> Any:
    (model, x), log = small(), Progress()

    def run(into: Progress, value: torch.Tensor) -> torch.Tensor:
        into.history.append(1.0)
        return cut(model, value)

    return model, functools.partial(run, log, x), lambda: log.history


@kept
def a_cache_and_a_dictionary_of_a_librarys_class() -> Any:
    model, x = small()
    past, batch = DynamicCache(), UserDict(x=x)
    past.update(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), 0)

    def step() -> torch.Tensor:
        keys, _ = past.update(model[0](batch.pop("x"))[None, None], torch.zeros(1, 1, 6, 4), 0)
        return model[1](keys.detach()).sum()

    return model, step, lambda: (past.get_seq_length(), list(batch))


@kept
def names_in_a_module_of_the_users_own() -> Any:
    (model, x), settings = small(), types.ModuleType("settings")
    settings.__file__ = f"{__file__[:-3]}_settings.py"
    settings.calls, settings.log = 0, []  # type: ignore[attr-defined]

    def step() -> torch.Tensor:
        settings.calls += 1
        settings.log.append(1)
        return cut(model, x)

    return model, step, lambda: (settings.calls, settings.log)


# -- tensors and arrays in plain objects ------------------------------------------------------------------------------


@kept
def a_memory_bank_and_means_in_plain_objects() -> Any:
    model, x = small()
    bank = types.SimpleNamespace(rows=torch.zeros(8, 4), at=0)
    state = {"mean": torch.zeros(4), "seen": [torch.zeros(1)]}

    def step() -> torch.Tensor:
        hidden = model[0](x)
        bank.rows[bank.at : bank.at + 6] = hidden.detach()
        bank.at = (bank.at + 6) % 8
        state["mean"].lerp_(hidden.detach().mean(0), 0.1)
        state["seen"][0] += 1
        state["mean"] = state["mean"] * 2
        bank.rows.data = bank.rows.data + 1
        return model[1](hidden.detach()).sum() + (hidden.detach() @ bank.rows.T).sum()

    return model, step, lambda: (bank.rows.tolist(), bank.at, state["mean"].tolist(), state["seen"][0].tolist())


@kept
def an_array_that_is_written_directly() -> Any:
    (model, x), table = small(), np.zeros((4, 4))
    shared = torch.from_numpy(table)

    def step() -> torch.Tensor:
        table[1] += model[0](x).detach().numpy().mean(0)
        return cut(model, x) + shared.sum()

    return model, step, lambda: (table.tolist(), shared.tolist())


@kept
def a_batch_that_a_step_takes_apart() -> Any:
    model, x = small()
    batch = {"x": x, "labels": torch.ones(6, 1)}

    def step() -> torch.Tensor:
        labels = batch.pop("labels")
        batch["x"] = batch["x"] * 2
        return ((model[1](model[0](batch["x"]).detach()) - labels) ** 2).mean()

    return model, step, lambda: ({key: value.tolist() for key, value in batch.items()})


# -- the tests --------------------------------------------------------------------------------------------------------


def ends(step: Callable[[], Any], error: BaseException | None) -> Callable[[], Any]:
    def run() -> Any:
        result = step()
        if error is not None:
            raise error
        return result

    return run


@pytest.mark.parametrize(
    "error", [None, ValueError("no"), KeyboardInterrupt(), TimeoutError()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("name", KEPT)
def test_nothing_is_left_behind_in(name: str, error: BaseException | None) -> None:
    model, step, look = KEPT[name]()
    before = copy.deepcopy(look())
    try:
        report = gradkit.diagnose(ends(step, error), model=model)
    except (gradkit.GradkitError, KeyboardInterrupt):
        assert error is not None
    else:
        assert error is None
        assert report.runs >= 1
    assert look() == before


@pytest.mark.parametrize("name", KEPT)
def test_what_these_tests_look_at_does_change_in(name: str) -> None:
    _, step, look = KEPT[name]()
    before = copy.deepcopy(look())
    step()
    assert look() != before


def test_every_run_of_a_step_begins_with_the_same_state() -> None:
    (model, x), dice, count, seen = small(), random.Random(3), itertools.count(), []
    told_of: SimpleQueue[Any] = SimpleQueue()

    def step() -> torch.Tensor:
        seen.append(dice.random())
        told_of.put((next(count), tuple(seen)))
        return cut(model, x)

    assert gradkit.diagnose(step, model=model).runs == RUNS
    first, *others = anew(told_of)
    assert all(one == first for one in others)
    assert next(count) == 0


# -- data already begun -----------------------------------------------------------------------------------------------


def rows(count: int = 8) -> torch.Tensor:
    return torch.arange(float(4 * count)).view(count, 4)


def stepping(model: nn.Module, take: Callable[[], Any], given: SimpleQueue[Any]) -> Callable[[], torch.Tensor]:
    def step() -> torch.Tensor:
        x = take()
        given.put(x.tolist())
        return cut(model, x.sub_(0.5))

    return step


def batches() -> Iterator[torch.Tensor]:
    for start in (0, 2, 4, 6):
        yield rows()[start : start + 2]


BEGUN: dict[str, Callable[[], Iterator[Any]]] = {
    "a list": lambda: iter([*batches()]),
    "a tuple": lambda: iter((*batches(),)),
    "a list, cycled": lambda: itertools.cycle([*batches()]),
    "a chain": lambda: itertools.chain([*batches()][:2], iter([*batches()][2:])),
    "a slice": lambda: itertools.islice([*batches()], 1, None),
    "a map": lambda: map(torch.Tensor.clone, [*batches()]),
    "a loader, mapped": lambda: map(operator.itemgetter(0), iter(DataLoader(TensorDataset(rows()), 2))),
}


def left(data: Iterator[Any]) -> list[Any]:
    return [one.tolist() for one in itertools.islice(data, 6)]


@pytest.mark.parametrize("name", BEGUN)
@pytest.mark.parametrize("begun", [0, 1])
def test_an_iterator_goes_on_where_it_was(name: str, begun: int) -> None:
    (model, _), data, same = small(), BEGUN[name](), BEGUN[name]()
    for _ in range(begun):
        next(data), next(same)
    given: SimpleQueue[Any] = SimpleQueue()
    assert gradkit.diagnose(stepping(model, lambda: next(data), given), model=model).runs == RUNS
    first, *others = anew(given)
    assert all(one == first for one in others)
    assert left(data) == left(same)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("error", [None, KeyboardInterrupt()], ids=["returns", "is_interrupted"])
def test_the_iterator_of_a_loader_gives_the_same_batches_again(workers: int, error: BaseException | None) -> None:
    model, _ = small()
    loader = DataLoader(TensorDataset(rows()), 2, shuffle=True, num_workers=workers)
    torch.manual_seed(0)
    same = [x.tolist() for (x,) in loader]
    torch.manual_seed(0)
    data = iter(loader)
    next(data)
    given: SimpleQueue[Any] = SimpleQueue()
    step = stepping(model, lambda: [next(data)[0], next(data)[0]][1], given)
    if error is None:
        assert gradkit.diagnose(step, model=model).runs == RUNS
    else:
        with pytest.raises(KeyboardInterrupt):
            gradkit.diagnose(ends(step, error), model=model)
    assert all(one == same[2] for one in told(given))
    assert [x.tolist() for (x,) in data] == same[1:]
    assert "_next_data" not in vars(data)


def test_the_end_of_the_data_is_met_again() -> None:
    (model, _), data = small(), iter(DataLoader(TensorDataset(rows(2)), 2))

    def step() -> torch.Tensor:
        return sum(cut(model, x) for (x,) in data)

    assert gradkit.diagnose(step, model=model).runs == RUNS
    assert len(list(data)) == 1


@pytest.mark.parametrize("wrap", [lambda one: one, itertools.cycle, enumerate], ids=["itself", "cycle", "enumerate"])
def test_a_generator_gives_every_run_the_same_and_goes_on_after_what_one_run_took(wrap: Any) -> None:
    (model, _), data, same = small(), wrap(batches()), wrap(batches())
    given: SimpleQueue[Any] = SimpleQueue()

    def take() -> torch.Tensor:
        one = next(data)
        return one[1] if isinstance(one, tuple) else one

    assert gradkit.diagnose(stepping(model, take, given), model=model).runs == RUNS
    first, *others = anew(given)
    assert all(one == first for one in others)
    assert type(data) is type(same)
    next(same)
    assert str(next(data)) == str(next(same))


class Feed:
    """Keeps its data under a name, in a list and in a dictionary."""

    def __init__(self) -> None:
        self.one, self.several, self.named = batches(), [batches()], {"a": batches()}

    def take(self) -> torch.Tensor:
        return next(self.one) + next(self.several[0]) + next(self.named["a"])


def test_generators_that_an_object_holds_give_every_run_the_same() -> None:
    (model, _), feed = small(), Feed()
    held = feed.one, feed.several[0], feed.named["a"]
    given: SimpleQueue[Any] = SimpleQueue()
    assert gradkit.diagnose(stepping(model, feed.take, given), model=model).runs == RUNS
    first, *others = anew(given)
    assert all(one == first for one in others)
    assert (feed.one, feed.several[0], feed.named["a"]) == held
    assert [next(one)[0, 0].item() for one in held] == [8, 8, 8]


def test_a_batch_that_is_taken_apart_is_whole_in_the_next_run() -> None:
    model, _ = small()
    data = iter(DataLoader([{"x": row, "y": row.sum()} for row in rows()], 2))
    given: SimpleQueue[Any] = SimpleQueue()

    def step() -> torch.Tensor:
        batch = next(data)
        given.put(sorted(batch))
        return cut(model, batch.pop("x").mul_(batch.pop("y").mean()))

    assert gradkit.diagnose(step, model=model).runs == RUNS
    assert all(one == ["x", "y"] for one in told(given))
    first = next(data)
    assert first["x"].tolist() == rows()[:2].tolist()
    assert sorted(first) == ["x", "y"]


def test_a_cut_inside_of_a_generator_that_runs_the_model_is_named_at_its_line() -> None:
    model, x = small()

    def features() -> Iterator[torch.Tensor]:
        while True:
            yield model[0](x).detach()

    data = features()
    report = gradkit.diagnose(lambda: model[1](next(data)).sum(), model=model)
    assert [finding.cause for finding in report.findings] == ["detach"]
    assert report.findings[0].location.line == features.__code__.co_firstlineno + 2
    assert report.findings[0].proof == "proven"
