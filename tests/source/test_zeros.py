"""Where a number became 0, from the argument that it is handed as."""

from __future__ import annotations

import ast
import linecache

import pytest

from gradkit.source import locations, syntax, zeros


def line_of(text: str, called: str, name: str) -> int | None:
    file = f"<zeros {hash(text)}>.py"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    tree = locations.tree_of(file)
    assert tree is not None
    call = next(
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(called)
    )
    value = syntax.argument(call, name, 1)
    assert value is not None
    found = zeros.written_at(file, value)
    return found.line if found is not None else None


PLACES = {
    "a_constant_of_the_module": "RATE = 0.0\noptimizer = SGD(weights, lr=RATE)",
    "a_number_that_was_rounded_away": "rate = 0.1 * (8 // 256)\noptimizer = SGD(weights, lr=rate)",
    "an_option": 'parser.add_argument("--lr", default=0.0)\noptimizer = SGD(weights, lr=args.lr)',
    "a_field_of_a_class": "class Config:\n    lr: float = 0.0\ndef f(c):\n    return SGD(weights, lr=c.lr)",
    "an_entry_of_a_dictionary": 'config = {\n    "lr": 0,\n}\noptimizer = SGD(weights, config["lr"])',
    "an_attribute": "self.rate = base * (n // 64)\noptimizer = SGD(weights, lr=self.rate)",
    "what_a_call_hands_on": "def build(weights, rate):\n    return SGD(weights, lr=rate)\nbuild(weights, 0.0)",
    "a_default": "def build(weights,\n    rate=0.0):\n    return SGD(weights, lr=rate)\nbuild(weights)",
    "one_of_two_factors": "scale = 3 // 8\noptimizer = SGD(weights, lr=1e-3 * scale)",
}
LINES = dict.fromkeys(PLACES, 1) | {
    "a_field_of_a_class": 2, "an_entry_of_a_dictionary": 2, "what_a_call_hands_on": 3, "a_default": 2
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_the_line_is_found_of(name: str) -> None:
    assert line_of(PLACES[name], "SGD", "lr") == LINES[name]


@pytest.mark.parametrize(
    "text",
    [
        "optimizer = SGD(weights, lr=0.0)",
        "rate = 0.0\nrate = 0.1\noptimizer = SGD(weights, lr=rate)",
        "optimizer = SGD(weights, lr=read_rate())",
        "a = 3 // 8\nb = 5 // 9\noptimizer = SGD(weights, lr=a * b)",
    ],
    ids=["written_on_the_spot", "given_twice", "from_elsewhere", "two_ways"],
)
def test_no_line_is_named_where_it_is_not_plain(text: str) -> None:
    assert line_of(text, "SGD", "lr") is None
