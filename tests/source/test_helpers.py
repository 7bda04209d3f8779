"""What the user's helpers return, by their source: the line in a helper that made a value, whoever asks for it."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from gradkit.source import attributes, syntax, zeros
from gradkit.source.helpers import Helpers, Part
from gradkit.source.used_up import used_up


def written(folder: Path, text: str, name: str = "train.py") -> str:
    file = folder / name
    file.write_text(dedent(text), encoding="utf-8")
    return str(file)


def made(folder: Path, text: str) -> str:
    """The source of what made the value of ``here``, as far as helpers lead."""
    file = written(folder, text)
    values = [v for node in syntax.nodes(file) for t, v in syntax.pairs(node) if ast.unparse(t).endswith("here")]
    *_, end = Helpers([file]).handed_back(Part(file, values[0]))
    return ast.unparse(end.node)


INNER = {
    "a_variable": "def build(n):\n    layer = Linear(n)\n    return layer\nhere = build(3)",
    "the_last_of_two": "def build(n):\n    x = rand(n)\n    x = Linear(n)\n    return x\nhere = build(3)",
    "two_helpers": "def inner(n):\n    return Linear(n)\ndef build(n):\n    return inner(n)\nhere = build(3)",
    "a_lambda": "build = lambda n: Linear(n)\nhere = build(3)",
    "another_name": "def inner(n):\n    return Linear(n)\nbuild = inner\nhere = build(3)",
    "an_argument": "def inner(n):\n    return Linear(n)\ndef f(build):\n    here = build(3)\nf(inner)",
    "a_default": "def inner(n):\n    return Linear(n)\ndef f(build=inner):\n    here = build(3)\nf()",
    "one_of_an_init": """
        def inner(n):
            return Linear(n)
        class A:
            def __init__(self, make):
                self.make = make
                self.here = self.make(3)
        A(inner)
    """,
    "a_method": "class A:\n    def build(self): return Linear(n)\n    def f(self):\n        here = self.build()",
    "of_the_class": "class A:\n    @staticmethod\n    def build(n):\n        return Linear(n)\n"
    "    def f(self):\n        here = A.build(3)",
    "of_a_base": "class B:\n    def build(self):\n        return Linear(n)\n"
    "class A(B):\n    def f(self):\n        here = self.build()",
    "beside_an_inner_one": "def build(n):\n    def log(): return n\n    log()\n    return Linear(n)\nhere = build(3)",
}


@pytest.mark.parametrize("name", INNER)
def test_a_call_leads_to_what_its_helper_returns(tmp_path: Path, name: str) -> None:
    assert made(tmp_path, INNER[name]).startswith("Linear(")


@pytest.mark.parametrize(
    "text",
    [
        "def build(n):\n    if n: return Linear(n)\n    return Linear(1)\nhere = build(3)",
        "def build(n):\n    return Linear(n)\ndef f(build):\n    here = build(3)",
        "class A:\n    def build(self):\n        return Linear(n)\nhere = build(3)",
        "class A:\n    def build(self):\n        return Linear(n)\n    def f(self):\n        here = self.net.build(3)",
        "def f():\n    def build(n):\n        return Linear(n)\nhere = build(3)",
    ],
    ids=["two_returns", "an_argument_that_nobody_gives", "a_method", "of_another_object", "out_of_sight"],
)
def test_what_may_be_another_function_or_has_several_returns_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    assert "build(3)" in made(tmp_path, text)


def test_a_call_of_itself_comes_to_an_end(tmp_path: Path) -> None:
    assert made(tmp_path, "def build(n):\n    return build(n)\nhere = build(3)") == "build(n)"


def defined(folder: Path, text: str) -> str:
    """The text of the line that defines ``head`` of the class ``A``."""
    file = written(folder, text)
    space: dict[str, type] = {"Linear": object}
    exec(compile(Path(file).read_text(encoding="utf-8"), file, "exec"), space)
    spot, _ = attributes.definition([(space["A"], "head")], [file])
    assert spot is not None
    return spot.text.strip()


def test_a_layer_is_defined_where_the_helper_made_the_variable_that_it_returns(tmp_path: Path) -> None:
    text = """
    def build(n):
        layer = Linear(n)
        return layer

    class A:
        def __init__(self):
            self.head = build(3)
    """
    assert defined(tmp_path, text) == "layer = Linear(n)"


def test_a_method_of_the_model_is_no_method_of_its_layers(tmp_path: Path) -> None:
    text = """
    class A:
        def __init__(self):
            self.head = Linear(3).to("cpu")

        def to(self, device):
            return super().to(device)
    """
    assert defined(tmp_path, text) == 'self.head = Linear(3).to("cpu")'


def empty_group(folder: Path, text: str) -> str | None:
    """The text of the line that made the generator which the last ``Adam`` was handed."""
    file = written(folder, text)
    call = next(one for one in syntax.nodes(file) if isinstance(one, ast.Call) and syntax.call_name(one) == "Adam")
    found = used_up(Part(file, call).place(), "Adam", ())
    return found.text.strip() if found is not None else None


GENERATORS = {
    "handed_to_a_class": """
        class Solver:
            def __init__(self, params):
                self.optimizer = Adam(params)

        mine = model.parameters()
        one, two = Solver(mine), Solver(mine)
    """,
    "a_variable_of_a_helper": """
        def pick(model):
            found = model.parameters()
            return found

        mine = pick(model)
        optimizer = Adam(mine)
    """,
    "a_helper_of_a_helper": """
        def inner(model):
            return model.parameters()

        def pick(model):
            return inner(model)

        mine = pick(model)
        optimizer = Adam(mine)
    """,
    "a_name_of_the_module": """
        mine = model.parameters()

        def build():
            return Adam(mine)
    """,
    "one_of_two_classes": """
        class Other:
            def pick(self, model):
                return (p for p in model.all())

        class Solver:
            def pick(self, model):
                return model.parameters()

            def build(self, model):
                mine = self.pick(model)
                return Adam(mine)
    """,
    "a_method_of_another_object": """
        class Net:
            def pick(self):
                return self.body.parameters()

        mine = net.pick()
        optimizer = Adam(mine)
    """,
}


@pytest.mark.parametrize("name", GENERATORS)
def test_the_generator_is_found_through_helpers_and_scopes(tmp_path: Path, name: str) -> None:
    assert ".parameters()" in (empty_group(tmp_path, GENERATORS[name]) or "")


@pytest.mark.parametrize(
    "text",
    [
        "def build(params):\n    params = list(params)\n    return Adam(params)\nbuild(model.parameters())",
        "mine = list(model.parameters())\ndef other():\n    mine = model.parameters()\noptimizer = Adam(mine)",
    ],
    ids=["made_a_list_of", "a_name_of_another_function"],
)
def test_a_list_is_no_generator_whatever_else_has_its_name(tmp_path: Path, text: str) -> None:
    assert empty_group(tmp_path, text) is None


def zeros_of(folder: Path, text: str, *files: str) -> str | None:
    """The text of the line that makes the zeros of ``self.a``."""
    file = written(folder, text)
    values = [v for node in syntax.nodes(file) for t, v in syntax.pairs(node) if ast.unparse(t) == "self.a"]
    found = zeros.made_in_helper(Part(file, values[0]).place(), files)
    return found.text.strip() if found is not None else None


def test_zeros_are_found_in_a_helper_of_another_file(tmp_path: Path) -> None:
    other = written(tmp_path, "def init(n):\n    return torch.zeros(n)\n", "layers.py")
    text = "from layers import init\nclass A:\n    def __init__(self):\n        self.a = init(3)\n"
    assert zeros_of(tmp_path, text, other) == "return torch.zeros(n)"
    assert zeros_of(tmp_path, text) is None


def test_of_two_returns_the_one_of_zeros_made_them(tmp_path: Path) -> None:
    text = """
    def init(n, ones):
        if ones:
            return torch.ones(n)
        return torch.zeros(n)

    class A:
        def __init__(self):
            self.a = init(3, False)
    """
    assert zeros_of(tmp_path, text) == "return torch.zeros(n)"


def test_what_a_call_hands_to_a_parameter_is_told_where_it_spreads_a_list_behind_it() -> None:
    function = ast.parse("def weigh(x, w, *rest): ...").body[0]
    calls = [ast.parse(one, mode="eval").body for one in ("weigh(x, 0.5, *rest)", "weigh(*x, 0.5)", "weigh(w=2, x=1)")]
    given = [syntax.handed(call, function, "w") for call in calls]  # type: ignore[arg-type]
    assert [ast.unparse(one) if one is not None else None for one in given] == ["0.5", None, "2"]
