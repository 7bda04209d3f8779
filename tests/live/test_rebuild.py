"""Programs that fail, written as people write them: the function made from the frame fails again, at the same line."""

from __future__ import annotations

import dis
import importlib
import linecache
import sys
import textwrap
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from gradkit.live import cells, stack
from gradkit.live.rebuild import CannotRebuild, step_of
from gradkit.source import frames, imported, locations
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


# -- what the step is --------------------------------------------------------------------------------------------------


def test_a_step_has_the_name_the_file_and_the_globals_of_its_frame(run: Run) -> None:
    failed = run("""
        class Trainer:
            def fit(self, net):
                for x in [torch.ones(2, 3)]:
                    net(x).detach().sum().backward()

        Trainer().fit(nn.Linear(3, 1))
    """)
    _, step = failed.first()
    frame = next(point.frame for point in failed.stack if point.code.co_name == "fit")
    assert (step.__code__.co_name, step.__code__.co_filename) == ("fit", failed.file)
    assert step.__qualname__ == "Trainer.fit"
    assert step.__globals__ is frame.f_globals


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows no columns")
def test_the_columns_of_a_step_are_those_of_the_program(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)]:
            loss = net(x).detach().sum(); loss.backward()
    """)
    _, step = failed.first()
    spots = {spot[:1] + spot[2:] for spot in step.__code__.co_positions()}
    begin = "    loss = net(x).detach().sum(); "
    assert (failed.line, len(begin), len(begin) + len("loss.backward()")) in spots


def test_a_step_is_told_by_the_source_of_its_file(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)]:
            net(x).detach().sum().backward()
    """)
    _, step = failed.first()
    with imported.looking():
        spot = locations.whole_line(step.__code__, failed.line)
    assert (spot.text, spot.changed) == ("    net(x).detach().sum().backward()", False)


def test_the_variables_of_a_frame_stay_as_they_are(run: Run) -> None:
    failed = run("""
        def fit(net):
            total = 0
            for x in [torch.ones(2, 3)]:
                total += 1
                x = x.float()
                net(x).detach().sum().backward()

        fit(nn.Linear(3, 1))
    """)
    frame = failed.stack[-1].frame if failed.stack[-1].code.co_name == "fit" else failed.units()[0][1].frame
    before = dict(frame.f_locals)
    failed.first()[1]
    assert {name: id(value) for name, value in frame.f_locals.items()} == {n: id(v) for n, v in before.items()}


def test_a_local_variable_that_was_never_set_is_not_taken_from_the_globals(run: Run) -> None:
    failed = run("""
        scale = 2.0

        def fit(net, x):
            if x is None:
                scale = 1.0
            loss = net(x).detach().sum() * (scale if x is None else 1)
            loss.backward()

        fit(nn.Linear(3, 1), torch.ones(2, 3))
    """)
    _, step = failed.first()
    assert "scale" in step.__code__.co_varnames


def test_a_name_that_only_some_passes_write_is_taken_from_the_frame(run: Run) -> None:
    failed = run("""
        def fit(net):
            for number, x in enumerate([torch.ones(2, 3)] * 2):
                if number == 0:
                    scale = 2.0
                loss = net(x).sum() if number == 0 else net(x).detach().sum() * scale
                loss.backward()

        fit(nn.Linear(3, 1))
    """)
    unit, step = failed.first()
    assert (unit.kind, unit.lost) == ("loop", frozenset())
    assert failed.fails_again(step)


def test_what_a_with_around_the_loop_enters_may_be_a_variable(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)

        def fit(data):
            quiet = torch.no_grad()
            with quiet, open(__file__) as text:
                for x in data:
                    loss = net(x).sum()
                    loss.backward()

        fit([torch.ones(2, 3)])
    """)
    unit, step = failed.first()
    assert unit.kind == "loop"
    assert "open" not in step.__code__.co_names


def test_the_cells_of_a_frame_are_shared_and_not_copied(run: Run) -> None:
    failed = run("""
        def fit(net):
            seen = 0

            def count():
                nonlocal seen
                seen += 1
                return seen

            for x in [torch.ones(2, 3)]:
                before = seen
                if count() == before:
                    raise ValueError
                if seen != before + 1:
                    raise KeyError
                net(x).detach().sum().backward()

        fit(nn.Linear(3, 1))
    """)
    assert failed.first()[0].kind == "loop"


def test_a_loop_that_rebinds_its_batch_has_a_unit_that_takes_another(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)
        for x, number in [(torch.ones(2, 3), 1), (None, 2)]:
            if x is None:
                raise ValueError
            x = net(x).detach()
            loss = x.sum()
            loss.backward()
    """)
    once, anew = [unit for unit, _ in failed.units() if unit.kind == "loop"]
    assert (once.redraws, once.lost) == (False, {"x"})
    assert (anew.redraws, anew.lost, anew.over) == (True, frozenset(), "[(torch.ones(2, 3), 1), (None, 2)]")
    frame = failed.units()[0][1].frame
    assert failed.fails_again(step_of(anew, frame))


def test_a_counter_is_what_it_was_when_the_failing_pass_began(run: Run) -> None:
    failed = run("""
        net, number, left = nn.Linear(3, 1), 0, 9

        def fit(data):
            global left
            step = 0
            for x in data:
                step += 1
                left -= 2
                out = net(x)
                if step == 2:
                    out = out.detach()
                if left == 5:
                    out.sum().backward()
                    raise ValueError

        fit([torch.ones(2, 3)] * 5)
    """)
    unit, step = failed.first()
    assert (unit.kind, unit.counted) == ("loop", (("step", 1), ("left", -2)))
    step.__globals__["left"] = 5  # the run before has counted, and nothing was put back
    assert failed.fails_again(step)


def test_a_while_that_takes_its_batch_in_its_test_takes_another(run: Run) -> None:
    failed = run("""
        net, data = nn.Linear(3, 1), iter([torch.ones(2, 3)] * 9)
        while (x := next(data, None)) is not None:
            x = net(x).detach()
            x.sum().backward()
    """)
    once, anew = [unit for unit, _ in failed.units() if unit.kind == "loop"]
    assert (once.lost, anew.redraws, anew.lost) == ({"x"}, True, frozenset())
    assert failed.fails_again(step_of(anew, failed.units()[0][1].frame))


def test_other_backwards_are_left_out_where_that_is_asked(run: Run) -> None:
    failed = run("""
        net, other, done = nn.Linear(3, 1), nn.Linear(3, 1), []
        for x in [torch.ones(2, 3)]:
            first = other(x).sum()
            first.backward(); done.append(1)
            second = net(x).detach().sum()
            second.backward()
    """)
    unit, point = failed.units()[0]
    names = step_of(unit, point.frame).__code__.co_code, step_of(unit, point.frame, alone=True).__code__.co_code
    assert len(names[1]) < len(names[0])
    assert failed.fails_again(step_of(unit, point.frame, alone=True))


# -- what is left out --------------------------------------------------------------------------------------------------


def test_what_only_logs_is_told_by_the_object_and_left_out(run: Run) -> None:
    failed = run("""
        import logging

        calls = []
        say = logging.getLogger("train")

        class Tracker:
            def info(self, text):
                calls.append(text)

        logger = Tracker()
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)]:
            say.info("a log")
            print("printed")
            logger.info("the program's own")
            net(x).detach().sum().backward()
    """)
    _, step = failed.first()
    assert not {"say", "print"} & set(step.__code__.co_names)
    assert "logger" in step.__code__.co_names


def test_a_log_of_what_is_worked_out_in_its_argument_stays(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)

        def work(x):
            return 1

        for x in [torch.ones(2, 3)]:
            print("loss", work(x))
            net(x).detach().sum().backward()
    """)
    assert "work" in failed.first()[1].__code__.co_names


def test_the_failing_statement_stays_even_if_it_prints(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)
        for x in [torch.ones(2, 3)]:
            print(net(x).detach().sum().backward())
    """)
    assert failed.first()[0].kind == "loop"


def test_a_flat_cell_takes_the_model_as_it_is_now(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        x = torch.ones(2, 3)
        hidden = net(x)
        cut = torch.ones(3, requires_grad=hidden is not None)
        loss = net(x).detach().sum()
        loss.backward()
    """)
    unit, step = failed.first()
    written = {one.argval for one in dis.get_instructions(step) if one.opname == "STORE_GLOBAL"}
    assert unit.kind == "module"
    assert written == {"x", "hidden", "cut", "loss"}  # a leaf of what is computed anew is made anew


def test_what_holds_models_is_taken_as_it_is_now(run: Run) -> None:
    failed = run("""
        class Agent:
            def __init__(self):
                self.net = nn.Linear(3, 1)

        def load():
            return nn.Linear(3, 1), Agent()

        nets = {"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)}
        agent = Agent()
        net, other = load()
        x = torch.ones(2, 3)
        loss = agent.net(x).detach().sum() + nets["a"](x).detach().sum()
        loss.backward()
    """)
    _, step = failed.first()
    written = {one.argval for one in dis.get_instructions(step) if one.opname == "STORE_GLOBAL"}
    assert written == {"x", "loss"}


def test_a_loop_that_trained_before_is_not_run_again(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)
        x = torch.ones(2, 3)
        for _ in range(3):
            net(x).sum().backward()
        loss = net(x).detach().sum()
        loss.backward()
    """)
    _, step = failed.first()
    assert "range" not in step.__code__.co_names


def test_a_hook_on_what_is_computed_anew_is_set_again(run: Run) -> None:
    failed = run("""
        net = nn.Linear(3, 1)
        x = torch.ones(2, 3)
        net.register_forward_hook(lambda *_: None)
        hidden = net(x)
        hidden.register_hook(lambda gradient: gradient)
        hidden.detach().sum().backward()
    """)
    names = failed.first()[1].__code__.co_names
    assert ("register_hook" in names, "register_forward_hook" in names) == (True, False)


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED = {
    "suspends": """
        import asyncio

        async def batches():
            yield torch.ones(2, 3)

        async def train(net):
            for _ in range(2):
                await asyncio.sleep(0)
                net(torch.ones(2, 3)).detach().sum().backward()

        asyncio.run(train(nn.Linear(3, 1)))
    """,
    "loss_from_outside": """
        def descend(loss, retain=False):
            loss.backward(retain_graph=retain)

        for x in [torch.ones(2, 3)]:
            descend(nn.Linear(3, 1)(x).detach().sum())
    """,
    "name_gone": """
        def fit(net, x):
            out = net(x).detach()
            del net
            out.sum().backward()

        fit(nn.Linear(3, 1), torch.ones(2, 3))
    """,
    "class_body": """
        class Config:
            net = nn.Linear(3, 1)
            for x in [torch.ones(2, 3)]:
                net(x).detach().sum().backward()
    """,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_run_by_itself_is_refused_with_a_reason(reason: str, run: Run) -> None:
    failed = run(REFUSED[reason])
    if reason == "class_body":
        assert [unit.kind for unit, point in failed.units() if point.code.co_name == "Config"] == []
    else:
        assert reason in failed.refusals()


def test_a_generator_that_the_program_still_draws_from_is_not_drawn_from() -> None:
    def take(data: Iterator[int]) -> CannotRebuild | None:
        number = next(data)
        here = sys._getframe()
        try:
            step_of(units_of(here.f_code, here.f_lasti, here.f_lineno)[-1], here)
        except CannotRebuild as refused:
            return refused
        assert number == 0
        return None

    data = (number for number in range(9))
    refused = take(data)
    assert refused is not None
    assert (refused.reason, refused.facts) == ("iterator_moves_on", {"name": "data"})
    assert next(data) == 1


def test_a_file_that_was_edited_since_has_no_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "edited_since.py"
    file.write_text("def fail():\n    for x in [1]:\n        y = x / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("edited_since")
    file.write_text("def fail():\n    # new\n    for x in [1]:\n        y = x / 0\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as caught:
        module.fail()
    last = stack.of_error(caught.value)[-1]
    sys.modules.pop("edited_since")
    assert units_of(last.code, last.lasti, last.line) == ()


def test_code_without_source_has_no_units() -> None:
    space: dict[str, Any] = {}
    exec(compile("def fail():\n    return 1 / 0\n", "<string>", "exec"), space)
    with pytest.raises(ZeroDivisionError) as caught:
        space["fail"]()
    last = stack.of_error(caught.value)[-1]
    assert units_of(last.code, last.lasti, last.line) == ()


# -- where programs come from ------------------------------------------------------------------------------------------


def test_a_program_in_an_archive_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def fail(data):\n    for x in data:\n        y = x + 1\n        z = y / 0\n"
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed_program.py", text)
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    module = importlib.import_module("packed_program")
    with pytest.raises(ZeroDivisionError) as caught:
        module.fail([1])
    last = stack.of_error(caught.value)[-1]
    loop = units_of(last.code, last.lasti, last.line)[0]
    sys.modules.pop("packed_program")
    assert (loop.kind, loop.first, loop.last) == ("loop", 3, 4)
    with pytest.raises(ZeroDivisionError):
        step_of(loop, last.frame)()


@pytest.mark.parametrize("name", ["/tmp/ipykernel_7/3321010380.py", "<ipython-input-2-0956e7f17520>", "<stdin>"])
def test_a_cell_is_run_again_by_the_text_that_python_keeps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "value = 4\nfor divisor in [2, 0]:\n    half = value / divisor\n"
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
    space: dict[str, Any] = {"__name__": "__main__"}
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile(text, name, "exec"), space)
    last = stack.of_error(caught.value)[-1]
    loop, cell = units_of(last.code, last.lasti, last.line)
    assert (loop.kind, cell.kind) == ("loop", "module")
    space["value"] = 6
    with pytest.raises(ZeroDivisionError):
        step_of(loop, last.frame)()
    assert space["half"] == 2.0


def test_code_that_exec_runs_with_locals_of_its_own_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "for divisor in [2, 0]:\n    half = value / divisor\n"
    monkeypatch.setitem(linecache.cache, "<stdin>", (len(text), None, text.splitlines(keepends=True), "<stdin>"))
    space: dict[str, Any] = {}
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile(text, "<stdin>", "exec"), space, {"value": 4})
    last = stack.of_error(caught.value)[-1]
    step = step_of(units_of(last.code, last.lasti, last.line)[0], last.frame)
    with pytest.raises(ZeroDivisionError):
        step()
    assert "half" not in space


def test_frames_that_are_running_are_run_again_and_not_disturbed() -> None:
    found: list[int] = []

    def train(data: list[int]) -> list[int]:
        scale = 10
        for number in data:
            scale += 1
            found.append(number * scale)
            if number == 2:
                here = sys._getframe()
                step = step_of(units_of(here.f_code, here.f_lasti, here.f_lineno, inclusive=False)[0], here)
                step()
        return [scale, number]

    assert train([1, 2, 3]) == [13, 3]
    assert found == [11, 24, 24, 39]


# -- cells -------------------------------------------------------------------------------------------------------------


def test_the_cells_of_each_run_of_a_function_that_calls_itself_are_its_own() -> None:
    def descend(depth: int) -> list[Any]:
        mine = [depth]
        inner = lambda: mine  # noqa: E731
        here = cells.of_frame(sys._getframe())["mine"].cell_contents is inner() is mine
        return [here, *(descend(depth - 1) if depth else [])]

    assert descend(2) == [True, True, True]


def test_a_frame_that_has_ended_holds_its_cells() -> None:
    kept: list[Any] = []

    def fail(value: object) -> None:
        other = [1]
        kept.append(lambda: (value, other))
        raise IndexError

    with pytest.raises(IndexError) as caught:
        fail([2])
    found = cells.of_frame(stack.of_error(caught.value)[-1].frame)
    shared = dict(zip(kept[0].__code__.co_freevars, kept[0].__closure__, strict=True))
    assert {name: found[name] is shared[name] for name in shared} == {"value": True, "other": True}
