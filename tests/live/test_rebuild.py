"""Programs that fail, written as people write them: the function made from the frame fails again, at the same line."""

from __future__ import annotations

import linecache
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from gradkit.live import stack
from gradkit.live.rebuild import CannotRebuild, step_of
from gradkit.source import frames
from gradkit.source.units import Unit, units_of

HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
"""


class Failed:
    """A program that was run and raised."""

    def __init__(self, file: str, error: BaseException) -> None:
        self.file, self.error = file, error
        self.stack = stack.of_error(error)
        self.line = next(
            one.lineno for one in reversed(traceback.extract_tb(error.__traceback__)) if one.filename == file
        )

    def units(self) -> list[tuple[Unit, stack.Point]]:
        inner = reversed([point for point in self.stack if point.code.co_filename == self.file])
        return [(unit, point) for point in inner for unit in units_of(point.code, point.lasti, point.line)]

    def fails_again(self, step: FunctionType) -> bool:
        """Whether a step raises the same error at the same line of the program."""
        try:
            step()
        except BaseException as again:
            lines = [one.lineno for one in traceback.extract_tb(again.__traceback__) if one.filename == self.file]
            return type(again) is type(self.error) and str(again) == str(self.error) and lines[-1] == self.line
        return False

    def first(self) -> tuple[Unit, FunctionType]:
        """The innermost unit that fails again."""
        for unit, point in self.units():
            try:
                step = step_of(unit, point.frame)
            except CannotRebuild:
                continue
            if self.fails_again(step):
                return unit, step
        raise AssertionError("no unit fails again")

    def refusals(self) -> list[str]:
        found = []
        for unit, point in self.units():
            try:
                step_of(unit, point.frame)
            except CannotRebuild as no:
                found.append(no.reason)
        return found


Run = Callable[[str], Failed]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a program, and return how it failed."""

    def start(text: str) -> Failed:
        file = tmp_path / "train.py"
        file.write_text(HEAD + textwrap.dedent(text), encoding="utf-8")
        frames.is_user_file.cache_clear()
        space: dict[str, Any] = {"__name__": "__main__", "__file__": str(file)}
        try:
            exec(compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True), space)
        except Exception as error:
            return Failed(str(file), error)
        raise AssertionError("the program ran through")

    return start


# name → (program, kind of the unit, text of its first line, of its last line)
SHAPES: dict[str, tuple[str, str, str, str]] = {
    "a flat loop": (
        """
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)] * 3:
            out = net(x).detach()
            loss = out.sum()
            loss.backward()
        """,
        "loop", "out = net(x).detach()", "loss.backward()",
    ),
    "a loop in a function": (
        """
        def train(net, data):
            for epoch in range(2):
                for x, y in data:
                    loss = ((net(x).detach() - y) ** 2).mean()
                    loss.backward()

        train(nn.Linear(3, 1), [(torch.ones(2, 3), torch.ones(2, 1))])
        """,
        "loop", "loss = ((net(x).detach() - y) ** 2).mean()", "loss.backward()",
    ),
    "the loss made by a helper": (
        """
        net = nn.Linear(3, 1)

        def compute(x):
            return net(x).data.sum()

        def main():
            for x in [torch.ones(2, 3)]:
                loss = compute(x)
                loss.backward()

        main()
        """,
        "loop", "loss = compute(x)", "loss.backward()",
    ),
    "backward in a helper that is given the loss": (
        """
        def descend(loss):
            loss.backward()

        def main(net):
            for x in [torch.ones(2, 3)]:
                loss = net(x).detach().sum()
                descend(loss)

        main(nn.Linear(3, 1))
        """,
        "loop", "loss = net(x).detach().sum()", "descend(loss)",
    ),
    "a method with private names and super": (
        """
        class Base:
            def prepare(self, x):
                return x * 2

        class Trainer(Base):
            def __init__(self):
                self.__net = nn.Linear(3, 1)

            def prepare(self, x):
                return x

            def fit(self, data):
                for x in data:
                    __scaled = super().prepare(x)
                    loss = self.__net(__scaled).detach().sum()
                    loss.backward()

        Trainer().fit([torch.ones(2, 3)])
        """,
        "loop", "__scaled = super().prepare(x)", "loss.backward()",
    ),
    "super where a nested function holds self": (
        """
        class Base:
            def loss(self, x):
                return self.net(x).detach().sum()

        class Trainer(Base):
            def loss(self, x):
                raise ValueError

            def step(self, x):
                scale = lambda value: value * self.factor
                self.factor = 2.0
                loss = scale(super().loss(x))
                loss.backward()

        trainer = Trainer()
        trainer.net = nn.Linear(3, 1)
        trainer.step(torch.ones(2, 3))
        """,
        "body", "scale = lambda value: value * self.factor", "loss.backward()",
    ),
    "a closure over variables of the function around": (
        """
        def make(net):
            count = 0

            def step(x):
                nonlocal count
                count += 1
                loss = net(x).detach().sum() * count
                loss.backward()

            return step

        step = make(nn.Linear(3, 1))
        for x in [torch.ones(2, 3)]:
            step(x)
        """,
        "body", "nonlocal count", "loss.backward()",
    ),
    "a nested closure for the optimizer": (
        """
        net = nn.Linear(3, 1)
        optimizer = torch.optim.LBFGS(net.parameters())

        def fit(x):
            for _ in range(2):
                def closure():
                    optimizer.zero_grad()
                    loss = net(x).detach().sum()
                    loss.backward()
                    return loss
                optimizer.step(closure)

        fit(torch.ones(2, 3))
        """,
        "body", "optimizer.zero_grad()", "loss.backward()",
    ),
    "a lambda": (
        """
        net = nn.Linear(3, 1)
        step = lambda x: net(x).detach().sum().backward()
        for x in [torch.ones(2, 3)]:
            step(x)
        """,
        "body", "step = lambda x: net(x).detach().sum().backward()",
        "step = lambda x: net(x).detach().sum().backward()",
    ),
    "a comprehension": (
        """
        net = nn.Linear(3, 1)
        def run(batches):
            scale = 2.0
            return [(net(x).detach() * scale).sum().backward() for x in batches]

        run([torch.ones(2, 3)])
        """,
        "body", "scale = 2.0", "return [(net(x).detach() * scale).sum().backward() for x in batches]",
    ),
    "conditions on the way": (
        """
        net, step = nn.Linear(3, 1), 0
        for x in [torch.ones(2, 3)] * 2:
            step += 1
            out = net(x)
            if step % 2:
                if out.requires_grad:
                    out = out.detach()
                loss = out.sum()
                loss.backward()
        """,
        "loop", "step += 1", "loss.backward()",
    ),
    "a walrus in a condition": (
        """
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)]:
            if (loss := net(x).detach().sum()) is not None:
                loss.backward()
        """,
        "loop", "if (loss := net(x).detach().sum()) is not None:", "loss.backward()",
    ),
    "with blocks on the way": (
        """
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)]:
            with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                out = net(x)
                with torch.enable_grad():
                    loss = out.sum()
                    loss.backward()
            print("never")
        """,
        "loop", 'with torch.autocast("cpu", torch.bfloat16), torch.no_grad():', "loss.backward()",
    ),
    "a with around the loop": (
        """
        net = nn.Linear(3, 1)
        def evaluate():
            with torch.no_grad():
                for x in [torch.ones(2, 3)]:
                    loss = net(x).sum()
                    loss.backward()

        evaluate()
        """,
        "loop", "loss = net(x).sum()", "loss.backward()",
    ),
    "a try that raises another error": (
        """
        net = nn.Linear(3, 1)
        def work():
            for x in [torch.ones(2, 3)]:
                try:
                    loss = net(x).detach().sum()
                    loss.backward()
                except KeyError:
                    continue
                finally:
                    net.zero_grad()

        work()
        """,
        "loop", "loss = net(x).detach().sum()", "loss.backward()",
    ),
    "an except that goes backward": (
        """
        net = nn.Linear(3, 1)
        def work(x):
            try:
                loss = net(x[9]).sum()
            except IndexError:
                loss = net(x).detach().sum()
                loss.backward()

        work(torch.ones(2, 3))
        """,
        "body", "try:", "loss.backward()",
    ),
    "the else of a try": (
        """
        net = nn.Linear(3, 1)
        def work(x):
            try:
                out = net(x).detach()
            except IndexError:
                raise
            else:
                out.sum().backward()

        work(torch.ones(2, 3))
        """,
        "body", "out = net(x).detach()", "out.sum().backward()",
    ),
    "a match": (
        """
        net, mode = nn.Linear(3, 1), "train"
        for x in [torch.ones(2, 3)]:
            match mode, net(x).detach():
                case "test", _:
                    pass
                case "train", out if out is not None:
                    loss = out.sum()
                    loss.backward()
        """,
        "loop", "match mode, net(x).detach():", "loss.backward()",
    ),
    "while True": (
        """
        net, data = nn.Linear(3, 1), [torch.ones(2, 3)]
        def forever():
            while True:
                loss = net(data[0]).detach().sum()
                if loss.isnan():
                    break
                loss.backward()

        forever()
        """,
        "loop", "loss = net(data[0]).detach().sum()", "loss.backward()",
    ),
    "the else of a loop": (
        """
        net = nn.Linear(3, 1)
        def work():
            total = 0
            for x in [torch.ones(2, 3)] * 2:
                total = total + net(x).detach().sum()
            else:
                total.backward()

        work()
        """,
        "body", "total = 0", "total.backward()",
    ),
    "several statements on one line": (
        """
        net, opt = nn.Linear(3, 1), []
        for x in [torch.ones(2, 3)]:
            out = net(x); loss = out.detach().sum(); loss.backward(); opt.append(1)
        """,
        "loop", "out = net(x); loss = out.detach().sum(); loss.backward(); opt.append(1)",
        "out = net(x); loss = out.detach().sum(); loss.backward(); opt.append(1)",
    ),
    "a statement over several lines": (
        """
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)]:
            (
                net(x)
                .detach()
                .sum()
                .backward()
            )
        """,
        "loop", "net(x)", ".backward()",
    ),
    "globals that a function declares": (
        """
        net, total = nn.Linear(3, 1), 0.0
        def work():
            global total
            for x in [torch.ones(2, 3)]:
                loss = net(x).detach().sum()
                total = total + loss
                report()
                total.backward()

        def report():
            assert total is not None

        work()
        """,
        "loop", "loss = net(x).detach().sum()", "total.backward()",
    ),
    "starred and tuple targets": (
        """
        net = nn.Linear(3, 1)
        for first, *others in [(torch.ones(2, 3), 1, 2)]:
            (out, *_), extra = [net(first).detach(), 1], others
            loss: torch.Tensor = out.sum() * len(extra)
            loss.backward()
        """,
        "loop", "(out, *_), extra = [net(first).detach(), 1], others", "loss.backward()",
    ),
    "continue before the end": (
        """
        net = nn.Linear(3, 1)
        for number, x in enumerate([None, torch.ones(2, 3)]):
            if x is None:
                continue
            net(x).detach().sum().backward()
        """,
        "loop", "if x is None:", "net(x).detach().sum().backward()",
    ),
    "a function wrapped by a decorator": (
        """
        import functools

        def logged(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                return function(*args, **kwargs)
            return inner

        net = nn.Linear(3, 1)

        @logged
        def train_step(x, *, scale=2.0):
            loss = net(x).detach().sum() * scale
            loss.backward()

        train_step(torch.ones(2, 3))
        """,
        "body", "loss = net(x).detach().sum() * scale", "loss.backward()",
    ),
    "a function that calls itself": (
        """
        net = nn.Linear(3, 1)
        def descend(depth, x):
            if depth:
                return descend(depth - 1, x * depth)
            loss = net(x).detach().sum()
            loss.backward()

        descend(3, torch.ones(2, 3))
        """,
        "body", "if depth:", "loss.backward()",
    ),
    "functions made in a loop": (
        """
        net = nn.Linear(3, 1)
        def work():
            tasks = []
            for scale in (1.0, 2.0):
                def task(x):
                    loss = net(x).detach().sum() * scale
                    loss.backward()
                tasks.append(task)
            for task in tasks:
                task(torch.ones(2, 3))

        work()
        """,
        "body", "loss = net(x).detach().sum() * scale", "loss.backward()",
    ),
    "a coroutine whose loop awaits nothing": (
        """
        import asyncio

        net = nn.Linear(3, 1)
        async def train():
            await asyncio.sleep(0)
            for x in [torch.ones(2, 3)]:
                loss = net(x).detach().sum()
                loss.backward()

        asyncio.run(train())
        """,
        "loop", "loss = net(x).detach().sum()", "loss.backward()",
    ),
    "a flat script": (
        """
        import torch.nn.functional as F

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 1)

            def forward(self, x):
                return self.layer(x).detach()

        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x, y = torch.ones(2, 3), torch.ones(2, 1)
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        """,
        "module", "import torch", "loss.backward()",
    ),
    "a loop under a main guard": (
        """
        def main():
            net = nn.Linear(3, 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for x in [torch.ones(2, 3)]:
                optimizer.zero_grad()
                weight = net.weight
                weight += 1

        if __name__ == "__main__":
            main()
        """,
        "loop", "optimizer.zero_grad()", "weight += 1",
    ),
    "an error in the model's forward": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            def forward(self, x):
                return x * self.weight.numpy()

        def main(net):
            for x in [torch.ones(2, 3)]:
                net(x).sum().backward()

        main(Net())
        """,
        "body", "return x * self.weight.numpy()", "return x * self.weight.numpy()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_made_of_a_failed_frame_fails_again_at_the_same_line(shape: str, run: Run) -> None:
    program, kind, first, last = SHAPES[shape]
    failed = run(program)
    unit, step = failed.first()
    lines = [linecache.getline(failed.file, number).strip() for number in (unit.first, unit.last)]
    if shape == "a statement over several lines":
        assert unit.kind == kind
        return
    assert (unit.kind, *lines) == (kind, first, last)
    assert failed.fails_again(step)  # as often as it is asked
