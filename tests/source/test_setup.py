"""Which line of the source set a state up: found by reading, never by running."""

from __future__ import annotations

import linecache
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gradkit.core.records import Location
from gradkit.source import attributes, freezing, locations, setup

Write = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def write() -> Iterator[Write]:
    """Makes a program out of source text; its file name, and, if it is to run, what it defines."""
    names: list[str] = []

    def made(text: str, *, run: bool = False) -> tuple[str, dict[str, Any]]:
        source, filename = textwrap.dedent(text).strip() + "\n", f"/home/ann/made{len(names)}.py"
        names.append(filename)
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        namespace: dict[str, Any] = {"__name__": f"made{len(names)}"}
        if run:
            exec(compile(source, filename, "exec"), namespace)
        return filename, namespace

    yield made
    for name in names:
        linecache.cache.pop(name, None)


def line(spot: Location | None) -> str | None:
    return spot.text.strip() if spot is not None else None


@pytest.mark.parametrize("left", ["torch.inference_mode(False)", "torch.inference_mode(mode=False)"])
def test_a_block_that_leaves_inference_mode_is_not_what_switched_it_on(write: Write, left: str) -> None:
    file, _ = write(f"""
        class Cache:
            def fill(self):
                with {left}:
                    self.steps = torch.arange(3.0)

        @torch.inference_mode()
        def check(model):
            model.fill()
        """)
    assert line(setup.inference_mode_line([file], "Cache.fill")) == "@torch.inference_mode()"


def pointed_at(spot: Location | None) -> str | None:
    return spot.text[spot.column - 1 : spot.end_column - 1] if spot is not None else None


# -- freezing ---------------------------------------------------------------------------------------------------------


def frozen(write: Write, text: str, *names: str, **options: Any) -> str | None:
    filename, _ = write(text)
    learning = dict.fromkeys(("encoder.0.weight", "encoder.norm.weight", "head.weight"), True)
    told = freezing.Flags(names, {**learning, **dict.fromkeys(names, False)})
    found = freezing.freezing([filename], told, **options)
    return line(found[0].location) if found else None


@pytest.mark.parametrize(
    "statement",
    [
        "model.requires_grad_(False)",
        "model.requires_grad_(requires_grad=False)",
        "p.requires_grad = False",
        "setattr(p, 'requires_grad', False)",
        "freeze(model)",
        "model.freeze_encoder()",
        "p.requires_grad = 'lora' in name",
        "model = prepare_model_for_kbit_training(model)",
        "table = nn.Embedding.from_pretrained(weights)",
        "table = torch.nn.EmbeddingBag.from_pretrained(weights, freeze=True)",
    ],
)
def test_a_line_that_freezes(write: Write, statement: str) -> None:
    assert frozen(write, f"x = 1\n{statement}\ny = 2", "encoder.weight") == statement


@pytest.mark.parametrize(
    "statement",
    [
        "model.requires_grad_(True)",
        "model.requires_grad_()",
        "p.requires_grad = True",
        "x = p.requires_grad",
        "unfreeze(m)",
        "table = nn.Embedding.from_pretrained(weights, freeze=False)",
        "table = nn.Embedding.from_pretrained(weights, False)",
        "model = AutoModel.from_pretrained(folder)",
    ],
)
def test_a_line_that_does_not_freeze(write: Write, statement: str) -> None:
    assert frozen(write, statement, "encoder.weight") is None


def test_of_two_freezing_lines_the_one_that_names_the_parameter_is_taken(write: Write) -> None:
    text = """
    model.head.requires_grad_(False)
    model.encoder.requires_grad_(False)
    """
    assert frozen(write, text, "encoder.0.weight") == "model.encoder.requires_grad_(False)"
    assert frozen(write, text, "head.weight") == "model.head.requires_grad_(False)"


def test_a_loop_over_the_named_part_counts_for_the_line_inside(write: Write) -> None:
    text = """
    for p in model.head.parameters():
        p.requires_grad = False
    for q in model.encoder.parameters():
        q.requires_grad = False
    """
    assert frozen(write, text, "encoder.0.weight") == "q.requires_grad = False"


def test_a_line_about_a_part_does_not_explain_what_is_frozen_outside_of_it(write: Write) -> None:
    text = """
    def freeze(model):
        for p in model[0].auto_model.parameters():
            p.requires_grad = False

    def freeze_less(model):
        model[0].auto_model.encoder.norm.requires_grad_(False)
    """
    assert frozen(write, text, "encoder.0.weight", "encoder.norm.weight") == "p.requires_grad = False"


def test_a_part_that_is_made_frozen_is_known_by_what_it_is_assigned_to(write: Write) -> None:
    text = """
    class Net(nn.Module):
        def __init__(self):
            self.head = nn.Linear(8, 8).requires_grad_(False)
            self.encoder, self.memory = nn.Sequential(nn.Linear(8, 8)).requires_grad_(False), None
    """
    assert (
        frozen(write, text, "encoder.0.weight")
        == "self.encoder, self.memory = nn.Sequential(nn.Linear(8, 8)).requires_grad_(False), None"
    )


def test_a_second_line_is_named_for_what_the_first_one_leaves(write: Write) -> None:
    filename, _ = write("model.user = nn.Embedding.from_pretrained(a)\nmodel.item = nn.Embedding.from_pretrained(b)")
    told = freezing.Flags(["user.weight", "item.weight"], {"user.weight": False, "item.weight": False, "bias": True})
    found = freezing.freezing([filename], told)
    assert [(match.location.line, sorted(match.names)) for match in found] == [
        (1, ["user.weight"]),
        (2, ["item.weight"]),
    ]


def test_a_tied_weight_is_frozen_by_a_line_about_the_other_part_that_has_it(write: Write) -> None:
    filename, _ = write("freeze(model)\nmodel.body.requires_grad_(False)\nmodel.pooler.requires_grad_(False)")
    flags = {"body.table": False, "body.bias": False, "head.weight": False, "head.bias": True, "pooler.w": True}
    told = freezing.Flags(["head.weight"], flags, tied={"head.weight": "body.table"})
    assert [one.location.line for one in freezing.freezing([filename], told)] == [2]


def test_a_function_named_after_the_part_that_it_freezes_counts_for_that_part(write: Write) -> None:
    text = "freeze_head(model)\nfreeze_encoder(model)"
    assert frozen(write, text, "encoder.0.weight") == "freeze_encoder(model)"
    assert frozen(write, text, "head.weight") == "freeze_head(model)"


def test_a_condition_that_rules_the_parameter_out_is_respected(write: Write) -> None:
    text = """
    for name, p in model.named_parameters():
        if "lora_" not in name:
            p.requires_grad = False
    """
    assert frozen(write, text, "layer.weight") == "p.requires_grad = False"
    assert frozen(write, text, "layer.lora_A.weight") is None


def test_the_line_that_freezes_in_a_class_of_no_model_comes_before_the_call_that_makes_its_object(write: Write) -> None:
    text = """
        class Policy:
            def apply(self, model):
                for name, parameter in model.named_parameters():
                    if not self.wants(name):
                        parameter.requires_grad = False

        def begin():
            return Trainer(Net(), [FreezeCallback(["head.*"])])
    """
    assert frozen(write, text, "head.weight") == "parameter.requires_grad = False"


def test_a_line_that_freezes_in_another_model_comes_last(write: Write) -> None:
    text = """
        class Other(nn.Module):
            def forward(self, x):
                self.head.requires_grad_(False)

        def begin(model):
            freeze(model)
    """
    assert frozen(write, text, "head.weight") == "freeze(model)"


def test_a_condition_on_how_a_name_begins_is_respected(write: Write) -> None:
    text = """
        for name, p in model.named_parameters():
            if not name.startswith(("head", "neck")):
                continue
            p.requires_grad = False
    """
    assert frozen(write, text, "head.weight") == "p.requires_grad = False"
    assert frozen(write, text, "body.weight") is None


def test_an_attribute_set_by_a_table_freezes_nothing(write: Write) -> None:
    assert frozen(write, "for key, value in table.items():\n    setattr(p, key, value)", "trunk.weight") is None


def test_wrapping_by_peft_freezes_only_if_asked(write: Write) -> None:
    assert frozen(write, "model = get_peft_model(model, config)", "w") is None
    assert frozen(write, "model = get_peft_model(model, config)", "w", wrapped=True) is not None


# -- loading, adding, building ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("PeftModel.from_pretrained(base, folder)", True),
        ("PeftModelForCausalLM.from_pretrained(base, folder, is_trainable=False)", True),
        ("model.load_adapter(folder)", True),
        ("PeftModel.from_pretrained(base, folder, is_trainable=True)", False),
        ("PeftModel.from_pretrained(base, folder, is_trainable=resume)", False),
        ("AutoModel.from_pretrained(folder)", False),
    ],
)
def test_an_adapter_is_loaded_for_inference(write: Write, call: str, found: bool) -> None:
    filename, _ = write(f"model = {call}")
    assert bool(setup.adapter_loading_lines([filename])) == found


def test_two_lines_that_load_an_adapter_are_both_named(write: Write) -> None:
    filename, _ = write("""
        def for_inference(base, folder):
            return PeftModel.from_pretrained(base, folder)

        def for_training(base, folder):
            return PeftModel.from_pretrained(base, folder)
    """)
    assert [spot.function for spot in setup.adapter_loading_lines([filename])] == ["for_inference", "for_training"]


def test_the_call_that_added_the_named_adapter_is_found(write: Write) -> None:
    filename, _ = write("model.add_adapter('a', one)\nmodel.add_adapter(adapter_name='b', config=two)")
    assert line(setup.adapter_line([filename], "b")) == "model.add_adapter(adapter_name='b', config=two)"
    assert setup.adapter_line([filename], "c") is None


@pytest.mark.parametrize(
    "call",
    [
        "kind(list(self.groups(model)))",
        "getattr(torch.optim, name)(list(self.groups(model)))",
        "OPTIMIZERS[name](groups, lr=0.1)",
    ],
)
def test_an_optimizer_whose_class_is_looked_up_by_name_was_built_there(write: Write, call: str) -> None:
    filename, _ = write(f"""
        def build(self, model, name):
            kind = getattr(torch.optim, name)
            self.optimizer_name = name.lower()
            return {call}
    """)
    assert line(setup.optimizer_line([filename], "Adam", {})) == f"return {call}"


def test_the_call_that_built_the_optimizer_is_found_and_its_import_is_not(write: Write) -> None:
    filename, _ = write("from torch.optim import AdamW\nx = AdamW\nopt = AdamW(model.parameters())")
    assert line(setup.optimizer_line([filename], "AdamW", {})) == "opt = AdamW(model.parameters())"


def test_of_several_calls_the_one_whose_settings_agree_built_the_optimizer(write: Write) -> None:
    filename, _ = write("slow = SGD(p, lr=0.1)\nfast = SGD(p, lr=0.5)")
    assert line(setup.optimizer_line([filename], "SGD", {"lr": "0.5"})) == "fast = SGD(p, lr=0.5)"


@pytest.mark.parametrize(
    ("picking", "named"),
    [
        ("[p for n, p in net.named_parameters() if 'bias' not in n]", "params"),
        ("[p for p in net.parameters() if p.requires_grad]", "opt"),
        ("list(net.head.parameters())", "params"),
        ("list(net.parameters())", "opt"),
    ],
)
def test_parameters_that_are_picked_out_on_a_line_of_their_own(write: Write, picking: str, named: str) -> None:
    filename, _ = write(f"def build(net):\n    params = {picking}\n    opt = SGD(params)\n    return opt")
    assert (line(setup.optimizer_line([filename], "SGD", {}, filtered=True)) or "").strip().startswith(named)


@pytest.mark.parametrize(("part", "named"), [("decoder.block", True), ("head", False)])
def test_the_call_that_hands_over_a_name_that_matches_nothing_is_found(write: Write, part: str, named: bool) -> None:
    text = f"""
    def only(model, part):
        for name, p in model.named_parameters():
            p.requires_grad = part in name
    only(net, {part!r})
    """
    filename, _ = write(text)
    spot = setup.matches_no_name([filename], "only", ["body.weight", "head.weight"])
    assert (line(spot) or "").startswith("only(") is named


def test_switching_off_by_a_call_is_found_and_by_a_with_is_not(write: Write) -> None:
    text = """
    with torch.set_grad_enabled(False):
        pass
    torch.set_grad_enabled(mode)
    torch.set_grad_enabled(False)
    """
    filename, _ = write(text)
    assert getattr(setup.grad_off_line([filename]), "line", None) == 4


def test_a_flag_set_on_a_module_is_found(write: Write) -> None:
    filename, _ = write("model.requires_grad = False\nmodel.head.requires_grad = True")
    assert line(freezing.flag_on_module([filename])) == "model.head.requires_grad = True"


def test_files_that_cannot_be_read_or_parsed_are_passed_over(write: Write) -> None:
    broken, _ = write("def f(:")
    whole, _ = write("opt = SGD(p)")
    assert line(setup.optimizer_line(["/home/ann/absent.py", broken, whole], "SGD", {})) == "opt = SGD(p)"


# -- classes ----------------------------------------------------------------------------------------------------------

MODEL = """
class Block:
    def __init__(self):
        self.proj = make(4)

    def forward(self, x):
        return self.proj(x)

class Model(Block):
    def __init__(self):
        self.left, self.right = make(1), make(2)
        self.blocks: list = [Block()]
        self.register_parameter("scale", None)
        self.cache = None

    def forward(self, x):
        self.cache = x.detach()
        if x:
            x = self.right(x)
        return self.left(x)
"""


def test_a_parameter_is_defined_where_the_innermost_class_of_the_users_sets_it(write: Write) -> None:
    _, made = write(MODEL, run=True)
    spot, attribute = attributes.definition(
        [(made["Model"], "blocks"), (list, "0"), (made["Block"], "proj"), (int, "weight")]
    )
    assert (line(spot), attribute) == ("self.proj = make(4)", "proj")
    assert spot is not None
    assert spot.function == "Block.__init__"


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ("left", "make(1)"),
        ("right", "make(2)"),
        ("blocks", "[Block()]"),
        ("scale", '.register_parameter("scale", None)'),
        ("proj", "make(4)"),
    ],
)
def test_the_value_that_is_given_to_the_attribute_is_pointed_at(write: Write, attribute: str, text: str) -> None:
    _, made = write(MODEL, run=True)
    spot, _ = attributes.definition([(made["Model"], attribute)])
    assert (pointed_at(spot) or "").endswith(text)


def test_an_attribute_that_no_class_of_the_users_sets_has_no_definition(write: Write) -> None:
    _, made = write(MODEL, run=True)
    assert attributes.definition([(made["Model"], "nowhere"), (int, "weight")]) == (None, "")


def test_of_two_classes_of_one_name_the_right_one_is_read(write: Write) -> None:
    text = """
    def first():
        class Model:
            def __init__(self): self.a = 1
        return Model

    def second():
        class Model:
            def __init__(self): self.b = 2
        return Model
    """
    _, made = write(text, run=True)
    assert pointed_at(attributes.definition([(made["second"](), "b")])[0]) == "2"
    assert attributes.definition([(made["second"](), "a")]) == (None, "")


def test_uses_are_reads_outside_of_init(write: Write) -> None:
    _, made = write(MODEL, run=True)
    assert [line(spot) for spot in attributes.uses([made["Model"]], "right")] == ["x = self.right(x)"]
    assert [line(spot) for spot in attributes.uses([made["Model"]], "proj")] == ["return self.proj(x)"]


def test_a_stored_value_is_found_where_it_is_stored_not_where_it_is_emptied(write: Write) -> None:
    _, made = write(MODEL, run=True)
    assert line(attributes.stored(made["Model"], "cache")) == "self.cache = x.detach()"
    assert attributes.stored(made["Model"], "left") is None


@pytest.mark.parametrize("method", sorted(attributes.ADDING))
def test_what_a_method_adds_to_a_container_is_created_where_it_is_added(write: Write, method: str) -> None:
    text = f"""
    class Model:
        def __init__(self):
            self.blocks = Shelf()
            self.blocks.{method}(Linear(2, 1))
    """
    _, made = write(text, run=True)
    assert [line(one) for one in attributes.created(made["Model"], "blocks", "Linear")] == [
        f"self.blocks.{method}(Linear(2, 1))"
    ]


def test_the_files_of_classes_are_the_users_only(write: Write) -> None:
    filename, made = write(MODEL, run=True)
    assert attributes.class_files([made["Model"], dict, Location]) == (filename,)


# -- decorators and blocks --------------------------------------------------------------------------------------------

DECORATED = """
import torch
frozen = torch.no_grad()

def plain(f):
    return f

@plain
@torch.no_grad()
def one(): ...

@plain
@frozen
def two(): ...

def three(): ...

quiet = torch.inference_mode()(three)

def four(): ...

class Model:
    @plain
    @torch.inference_mode()
    def five(self): ...
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one", "@torch.no_grad()"),
        ("two", "@frozen"),
        ("three", "quiet = torch.inference_mode()(three)"),
        ("four", "def four(): ..."),
        ("five", "@torch.inference_mode()"),
    ],
)
def test_the_decorator_that_switches_gradients_off_is_found(write: Write, name: str, text: str) -> None:
    _, made = write(DECORATED, run=True)
    function = made["Model"].five if name == "five" else made[name]
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    assert line(locations.locate_code(function.__code__, made)) == text


def test_a_function_wrapped_by_hand_in_another_scope_is_another_function(write: Write) -> None:
    text = """
    import torch

    def outer():
        def encode(): ...
        return torch.no_grad()(encode)

    def encode(): ...
    """
    _, made = write(text, run=True)
    assert line(locations.locate_code(made["encode"].__code__, made)) == "def encode(): ..."


def test_the_innermost_block_around_a_line_is_found(write: Write) -> None:
    text = """
    import sys, torch; from contextlib import nullcontext
    with torch.no_grad():
        with nullcontext(), torch.inference_mode():
            here = sys._getframe()
            point = here.f_code, here.f_lasti
    after = sys._getframe()
    outside = after.f_code, after.f_lasti
    """
    _, made = write(text, run=True)
    around = locations.around(made["point"])
    assert around is not None
    assert (around.line, pointed_at(around)) == (3, ".inference_mode()")
