"""Which statements make a step, told from the text of a program and the line that was running."""

from __future__ import annotations

import ast
import dis
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType

import pytest

from gradkit.source import rebinding
from gradkit.source.units import Unit, units_of

Find = Callable[..., list[Unit]]


@pytest.fixture
def find() -> Iterator[Find]:
    """The units of the function ``f`` in a text, or of the text itself, at the line that ends in ``# HERE``."""

    def look(text: str, *, inclusive: bool = True, of: str = "f") -> list[Unit]:
        text = textwrap.dedent(text).strip("\n") + "\n"
        linecache.cache["<units>"] = len(text), None, text.splitlines(keepends=True), "<units>"
        code = next(one for one in every(compile(text, "<units>", "exec")) if one.co_name == of)
        line = next(number for number, one in enumerate(text.splitlines(), 1) if one.endswith("# HERE"))
        offset = max((start for start, _, at in code.co_lines() if at == line), default=0)
        return list(units_of(code, offset, line, inclusive=inclusive))

    yield look
    linecache.cache.pop("<units>", None)


def every(code: CodeType) -> list[CodeType]:
    return [code, *(inner for one in code.co_consts if isinstance(one, CodeType) for inner in every(one))]


def told(unit: Unit) -> str:
    return "\n".join(ast.unparse(one) for one in unit.statements)


def test_the_innermost_loop_comes_first_and_the_function_last(find: Find) -> None:
    found = find("""
        def f(net, data):
            a = 1
            for epoch in range(3):
                b = 2
                for x in data:
                    loss = net(x)
                    loss.backward()  # HERE
                    c = 3
    """)
    assert [(one.kind, one.loop_line, one.first, one.last) for one in found] == [
        ("loop", 5, 6, 7), ("loop", 3, 4, 8), ("body", 0, 2, 8),
    ]  # fmt: skip
    assert [one.targets for one in found] == [{"x"}, {"epoch"}, {"net", "data"}]


def test_a_module_is_a_unit_of_its_own_kind(find: Find) -> None:
    found = find("a = 1\nb = a.backward()  # HERE\nc = 2", of="<module>")
    assert [(one.kind, told(one)) for one in found] == [("module", "a = 1\nb = a.backward()")]


def test_an_if_and_a_try_on_the_way_are_entered(find: Find) -> None:
    [body] = find("""
        def f(x):
            if x > 1:
                a = 1
            elif x:
                try:
                    b = 2
                    b.backward()  # HERE
                finally:
                    c = 3
            d = 4
    """)
    assert told(body) == "b = 2\nb.backward()"


def test_the_test_of_an_if_stays_where_it_gives_a_name_a_value(find: Find) -> None:
    [body] = find("""
        def f(x):
            if (y := g(x)) and y.ok:
                y.backward()  # HERE
    """)
    assert told(body).splitlines() == ["(y := g(x)) and y.ok", "y.backward()"]


def test_a_with_on_the_way_is_kept_and_cut_short(find: Find) -> None:
    [body] = find("""
        def f(x):
            with a(), b() as c:
                y = c(x)
                with d():
                    y.backward()  # HERE
                    z = 1
                z = 2
    """)
    assert told(body) == "with a(), b() as c:\n    y = c(x)\n    with d():\n        y.backward()"
    assert (body.last, [one.lineno for one in body.within]) == (5, [2, 4])


def test_with_blocks_around_a_loop_are_told_apart_from_those_within(find: Find) -> None:
    loop, body = find("""
        def f(data):
            with a():
                for x in data:
                    with b():
                        x.backward()  # HERE
    """)
    assert ([one.lineno for one in loop.around], [one.lineno for one in loop.within]) == ([2], [4])
    assert (body.around, [one.lineno for one in body.within]) == ((), [2, 4])


def test_an_inner_loop_is_kept_whole(find: Find) -> None:
    _, outer, _ = find("""
        def f(data):
            for batch in data:
                total = 0
                for part in batch:
                    part.backward()  # HERE
                    total += 1
                step()
    """)
    assert told(outer) == "total = 0\nfor part in batch:\n    part.backward()\n    total += 1"


def test_an_error_in_the_head_of_a_loop_belongs_to_what_the_loop_stands_in(find: Find) -> None:
    [body] = find("""
        def f(data):
            a = 1
            for x in data.fails():  # HERE
                b = x
    """)
    assert told(body) == "a = 1\nfor x in data.fails():\n    b = x"


def test_the_else_of_a_loop_is_no_pass_of_it(find: Find) -> None:
    found = find("""
        def f(data):
            for x in data:
                a = x
            else:
                a.backward()  # HERE
    """)
    assert [one.kind for one in found] == ["body"]


def test_a_handler_is_entered_by_what_its_try_raises(find: Find) -> None:
    [body] = find("""
        def f(x):
            try:
                y = g(x)
            except KeyError as error:
                y = h(x)
                y.backward()  # HERE
                z = 1
            except ValueError:
                z = 2
            finally:
                z = 3
    """)
    assert told(body).splitlines() == [
        "try:", "    y = g(x)", "except KeyError as error:", "    y = h(x)", "    y.backward()",
        "except ValueError:", "    z = 2",
    ]  # fmt: skip


def test_a_finally_is_reached_by_way_of_its_try(find: Find) -> None:
    [body] = find("""
        def f(x):
            try:
                y = g(x)
            finally:
                y.backward()  # HERE
                z = 1
    """)
    assert told(body) == "try:\n    y = g(x)\nfinally:\n    y.backward()"


def test_a_match_whose_pattern_gives_no_name_a_value_is_entered(find: Find) -> None:
    [body] = find("""
        def f(x, mode):
            match mode:
                case "train":
                    x.backward()  # HERE
                case _:
                    y = 1
    """)
    assert told(body) == "x.backward()"


def test_a_match_that_gives_names_values_is_kept_with_the_case_that_it_took(find: Find) -> None:
    [body] = find("""
        def f(x):
            match g(x):
                case [a, *rest] if a:
                    a.backward()  # HERE
                    y = 1
                case other:
                    y = 2
    """)
    assert told(body) == "match g(x):\n    case [a, *rest] if a:\n        a.backward()"


def test_without_the_failing_statement_a_unit_ends_at_the_last_backward(find: Find) -> None:
    loop, _ = find(
        """
        def f(data):
            for x in data:
                with scaled():
                    loss = net(x)
                    loss.backward()
                    clip(net)
                more = 1
                optimizer.step()  # HERE
        """,
        inclusive=False,
    )
    assert told(loop) == "with scaled():\n    loss = net(x)\n    loss.backward()"
    assert loop.last == 5


def test_a_function_that_holds_nothing_but_the_statement_left_out_has_no_unit(find: Find) -> None:
    assert find("def f(o):\n    o.step()  # HERE", inclusive=False) == []


def test_a_docstring_is_no_statement(find: Find) -> None:
    [body] = find('def f(x):\n    """One step."""\n    x.backward()  # HERE')
    assert told(body) == "x.backward()"


def test_a_unit_of_a_method_knows_its_class_also_in_a_function_in_it(find: Find) -> None:
    text = """
        class Outer:
            class _Trainer:
                def step(self):
                    def f():
                        self.__loss.backward()  # HERE
    """
    assert [one.owner for one in find(text)] == ["_Trainer"]


def test_of_functions_with_one_name_the_one_on_the_line_is_taken(find: Find) -> None:
    text = """
        if False:
            def f():
                a.backward()
        else:
            @wrapped
            def f():
                b.backward()  # HERE
    """
    text = textwrap.dedent(text).strip("\n") + "\n"
    code = [one for one in every(compile(text.replace("if False", "if x"), "<units>", "exec")) if one.co_name == "f"]
    linecache.cache["<units>"] = len(text), None, text.splitlines(keepends=True), "<units>"
    assert [told(one) for one in units_of(code[-1], 0, 7)] == ["b.backward()"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows no columns by itself")
def test_of_two_lambdas_on_one_line_the_one_that_ran_is_taken() -> None:
    text = "f, g = lambda x: x.a(), lambda x: x.b()\n"
    linecache.cache["<units>"] = len(text), None, [text], "<units>"
    codes = [one for one in every(compile(text, "<units>", "exec")) if one.co_name == "<lambda>"]
    for code, wanted in zip(codes, ("return x.a()", "return x.b()"), strict=True):
        offset = next(one.offset for one in dis.get_instructions(code) if one.opname == "CALL")
        assert [told(one) for one in units_of(code, offset, 1)] == [wanted]


def test_the_body_of_a_class_and_a_generator_expression_are_no_functions(find: Find) -> None:
    assert find("class f:\n    a.backward()  # HERE") == []
    assert find("def f(): ...\nt = sum(\n    x.backward()  # HERE\n    for x in y)", of="<genexpr>") == []


def test_code_of_a_text_that_is_not_known_has_no_units() -> None:
    code = compile("a = 1", "no_such_file.py", "exec")
    assert units_of(code, 0, 1) == ()


# -- names -------------------------------------------------------------------------------------------------------------


def flow(text: str) -> rebinding.Flow:
    return rebinding.flow(ast.parse(textwrap.dedent(text)).body)


READ_FIRST: dict[str, str] = {
    "y = x": "x",
    "x = 1; y = x": "",
    "x += 1": "x",
    "for x in a: b = x": "a",
    "with a as x: x.f()": "a",
    "b = [x for x in a if x]": "a",
    "b = {k: v + w for k, v in a.items()}": "a w",
    "f = lambda x, *y, z=a: x + y + z + b": "a b",
    "def f(x=a):\n    y = x + b\n    return y": "a b",
    "def f():\n    nonlocal_ = 1\n    nonlocal n\n    n = 2": "n",
    "class A(B):\n    x = y": "B y",
    "if a: x = 1\nelse: y = x\nx": "a x",
    "if (n := a): b = n": "a",
    "b = [n := a, n]": "a",
    "try: x = 1\nexcept E as e: print(e)": "E print",
    "match a:\n    case {'k': k, **rest}: b = k, rest\n    case [h, *t]: b = h, t": "a",
    "import a.b, c as d; a.b, d": "",
    "del x": "x",
    "x: int = a; x": "a",
    "x[0] = a; y.z = b": "a b x y",
    "a, (b, *c) = d; a, b, c": "d",
}


@pytest.mark.parametrize("text", READ_FIRST)
def test_names_that_are_read_before_they_are_written(text: str) -> None:
    body = ast.parse(text).body
    assert rebinding.flow(body).read == set(READ_FIRST[text].split())


def test_what_only_one_way_reads_is_not_needed() -> None:
    assert flow("if a: x = b").needed == {"a"}
    assert flow("x = a and b").needed == {"a"}
    assert flow("x = b if a else c").needed == {"a"}
    assert flow("for x in a: b").needed == {"a"}
    assert flow("with a: b").needed == {"a", "b"}


def test_what_only_some_passes_write_is_used_from_before() -> None:
    found = flow("if new: scale = f()\nloss = scale * 2")
    assert ("scale" in found.used, "scale" in found.read, "loss" in found.used) == (True, False, False)
    assert found.rebound == set()


HARMLESS = (
    "x = x.to(device)",
    "x, y = x.cuda(), y.long()",
    "x, y = [one.to(device) for one in (x, y)]",
    "x, y = (one.cuda() for one in (x, y))",
    "batch = {k: v.to(device) for k, v in batch.items()}",
    "batch = {k: v.to(device) if is_tensor(v) else v for k, v in batch.items()}",
    "batch = tuple(one.to(device) for one in batch)",
    "batch = tuple(map(lambda one: one.to(device), batch))",
    "inputs = self._prepare_inputs(inputs)",
    "x = x.view(x.size(0), -1).float()",
    "x = x.cuda() if cuda else x",
    "x = Variable(x)",
)
LOST = (
    "x = net.encoder(x)",
    "x = x / 255",
    "x = x.float() / 255",
    "x += 1",
    "x = x[:, 0]",
    "x = one_hot(x)",
    "x = x.to(device)\nx = net(x)",
    "y = f(x)\nx = other()",
    "x = x.detach()",
    "x, y = y, x",
    "y = x\nfor x in y: pass",
    "del x",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_moves_or_casts_may_be_done_twice(text: str) -> None:
    assert rebinding.lost(ast.parse(text).body) == set()


@pytest.mark.parametrize("text", LOST)
def test_what_makes_something_else_of_a_name_loses_what_it_held(text: str) -> None:
    assert "x" in rebinding.lost(ast.parse(text).body)


# -- a loss from outside -----------------------------------------------------------------------------------------------

FROM_OUTSIDE = (
    "loss.backward()",
    "optimizer.zero_grad()\nloss.backward(retain_graph=True)",
    "scaler.scale(loss).backward()",
    "accelerator.backward(loss)",
    "self.accelerator.backward(loss)",
    "(loss / steps).backward()",
    "sum(losses).backward()",
    "torch.stack(losses).mean().backward()",
    "losses['total'].backward()",
    "outputs.loss.backward()",
)
MADE_HERE = (
    "loss = f(x)\nloss.backward()",
    "f(x).backward()",
    "scaler.scale(criterion(net(x), y)).backward()",
    "accelerator.backward(net(x).loss)",
    "self.loss = f(x)\nself.loss.backward()",
    "self.forward(x)\nself.loss.backward()",
    "losses['a'] = f(x)\nlosses['a'].backward()",
    "losses.append(f(x))\nlosses[-1].backward()",
    "first = f(x)\nfirst.backward()\nloss.backward()",
    "y = f(x)",
)


@pytest.mark.parametrize("text", FROM_OUTSIDE)
def test_a_loss_that_was_made_before_is_from_outside(text: str) -> None:
    assert rebinding.loss_from_outside(ast.parse(text).body)


@pytest.mark.parametrize("text", MADE_HERE)
def test_a_loss_that_is_made_here_is_not_from_outside(text: str) -> None:
    assert not rebinding.loss_from_outside(ast.parse(text).body)
