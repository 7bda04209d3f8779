"""The line that makes a generator which an optimizer was handed once it had been used up."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from gradkit.source import locations, syntax
from gradkit.source.used_up import used_up


def named(folder: Path, text: str) -> str | None:
    """The text of the line, of the optimizer that stands on the last line with ``Adam``."""
    file = folder / "train.py"
    file.write_text(dedent(text), encoding="utf-8")
    calls = [(node, around) for node, around in syntax.statements(str(file)) if getattr(node, "func", None) is not None]
    node, around = next((n, a) for n, a in calls if syntax.call_name(n) == "Adam")  # type: ignore[arg-type]
    found = used_up(locations.place(str(file), node, syntax.function_of(around)), "Adam", ())
    return found.text.strip() if found is not None else None


@pytest.mark.parametrize(
    "text",
    [
        """
        params = filter(lambda p: p.requires_grad, model.parameters())
        count = sum(p.numel() for p in params)
        optimizer = torch.optim.Adam(params)
        """,
        """
        def optimizers(model):
            params = model.parameters()
            return [SGD(params), torch.optim.Adam([{"params": params}])]
        """,
        """
        def build(params):
            return torch.optim.Adam(params)

        mine = (p for p in model.parameters())
        one, two = build(mine), build(mine)
        """,
        """
        class Solver:
            def __init__(self, model):
                self.mine = self.pick(model)
                self.build()

            def pick(self, model):
                return filter(wanted, model.parameters())

            def build(self):
                groups = [{"params": self.mine}]
                self.optimizer = torch.optim.Adam(groups)
        """,
        """
        groups = []
        head = model.head.parameters()
        groups += [{"params": head}]
        optimizer = Adam(groups)
        """,
    ],
)
def test_the_line_that_makes_the_generator_is_named(tmp_path: Path, text: str) -> None:
    made = named(tmp_path, text)
    assert made is not None
    assert any(word in made for word in ("filter(", ".parameters()"))


def test_it_is_named_where_the_optimizer_was_seen_to_be_built_outside_of_functions(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("head = model.parameters()\nlist(head)\noptimizer = Adam(head)\n", encoding="utf-8")
    tree = locations.tree_of(str(file))
    assert tree is not None
    built = locations.place(str(file), tree.body[-1], "<module>")
    found = used_up(built, "Adam", ())
    assert found is not None
    assert found.line == 1


@pytest.mark.parametrize(
    "text",
    [
        "optimizer = Adam(p for p in model.parameters())",
        "optimizer = Adam(model.parameters())",
        "params = list(model.parameters())\noptimizer = Adam(params)",
        "params = [p for p in model.parameters()]\noptimizer = Adam(params)",
        "a = model.a.parameters()\nb = model.b.parameters()\noptimizer = Adam([{'params': a}, {'params': b}])",
    ],
)
def test_what_is_made_there_or_is_no_generator_or_is_one_of_two_is_not_named(tmp_path: Path, text: str) -> None:
    assert named(tmp_path, text) is None
