"""Whether an optimizer's line would have taken in what is frozen, as far as the source says."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from gradkit.source import locations, syntax
from gradkit.source.picked_by_flag import would_be_taken

EVERYTHING = ("tower.weight", "proj.weight", "proj.bias", "head.weight", "head.bias")


def taken(folder: Path, text: str) -> tuple[str, ...]:
    """Of the projector, what the optimizer named ``AdamW`` would have been handed."""
    file = folder / "train.py"
    file.write_text(dedent(text), encoding="utf-8")
    calls = [(node, around) for node, around in syntax.statements(str(file)) if getattr(node, "func", None) is not None]
    node, around = next((n, a) for n, a in calls if syntax.call_name(n) == "AdamW")  # type: ignore[arg-type]
    built = locations.place(str(file), node, syntax.function_of(around))
    return would_be_taken(built, "AdamW", ("proj.weight", "proj.bias"), EVERYTHING, ())


@pytest.mark.parametrize(
    "text",
    [
        "AdamW([p for p in model.parameters() if p.requires_grad])",
        "AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)",
        "AdamW(params=(p for n, p in model.named_parameters() if p.requires_grad is True and 'tower' not in n))",
        """
        def trainable(module):
            return [p for p in module.parameters() if p.requires_grad]

        def optimizer(model):
            return AdamW([{"params": trainable(model.proj)}, {"params": trainable(model.head), "lr": 1e-4}])
        """,
        """
        def groups(model):
            decay, rest = [], []
            for name, p in model.named_parameters():
                if not p.requires_grad:
                    continue
                if p.ndim < 2 or name.endswith("bias"):
                    rest.append(p)
                else:
                    decay.append(p)
            return [{"params": decay}, {"params": rest, "weight_decay": 0.0}]

        optimizer = AdamW(groups(model))
        """,
        """
        def named(model):
            return model.named_parameters()

        class Task:
            def configure_optimizers(self):
                off = ["bias"]
                grouped = [
                    {"params": [p for n, p in named(self) if p.requires_grad and not any(x in n for x in off)]},
                    {"params": [p for n, p in named(self) if any(x in n for x in off) and p.requires_grad]},
                ]
                return AdamW(grouped)
        """,
        """
        def trained(model):
            for name, p in model.named_parameters():
                if p.requires_grad:
                    yield p

        optimizer = AdamW(list(trained(model)))
        """,
        """
        named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        optimizer = AdamW(named.values())
        """,
    ],
)
def test_what_takes_all_that_requires_grad_would_take_it(tmp_path: Path, text: str) -> None:
    assert taken(tmp_path, text) == ("proj.weight", "proj.bias")


@pytest.mark.parametrize(
    "text",
    [
        "AdamW(model.head.parameters())",
        "AdamW([p for p in model.head.parameters() if p.requires_grad])",
        "AdamW([p for n, p in model.named_parameters() if p.requires_grad and 'head' in n])",
        "AdamW([p for n, p in model.named_parameters() if p.requires_grad and wanted(n)])",
        """
        head = model.head
        optimizer = AdamW([p for p in head.parameters() if p.requires_grad])
        """,
        """
        groups = []
        for name, p in model.named_parameters():
            if p.requires_grad and name.startswith("head"):
                groups.append({"params": [p]})
        optimizer = AdamW(groups)
        """,
        """
        def build(params):
            return AdamW(params)
        """,
    ],
)
def test_what_picks_parts_or_says_nothing_would_not(tmp_path: Path, text: str) -> None:
    assert taken(tmp_path, text) == ()


def test_of_several_parameters_only_those_are_told_that_no_other_condition_leaves_out(tmp_path: Path) -> None:
    text = "AdamW([p for n, p in model.named_parameters() if p.requires_grad and not n.endswith('bias')])"
    assert taken(tmp_path, text) == ("proj.weight",)
