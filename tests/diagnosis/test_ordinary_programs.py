"""Programs that are nothing special, and strangers' objects in them: looked at without being asked, never a crash."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core import attempts
from gradkit.core.errors import GradkitError
from gradkit.diagnosis import rule_order
from gradkit.diagnosis.experiments import lost_gradients, undo_cuts, undo_errors, without_hooks
from gradkit.diagnosis.facts import optimizers
from gradkit.diagnosis.rules import harmless
from gradkit.report.picture import build
from gradkit.report.report import Report
from gradkit.state import registered
from gradkit.tracing import autograd_graph


class Pair(nn.Module):
    """Two layers; ``cut`` detaches what lies between them."""

    def __init__(self, held: object = None, *, cut: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.cut = nn.Linear(3, 3), nn.Linear(3, 1), cut
        self.held, self.more, self.table = held, [held, (held,)], {"held": held}

    def forward(self, x: torch.Tensor, extra: object = None) -> torch.Tensor:
        y = self.first(x)
        return self.last(y.detach() if self.cut else y)


def diagnosed(model: nn.Module, *given: object) -> Report:
    x = torch.ones(2, 3)
    return gradkit.diagnose(lambda: model(x, *given).sum(), model=model)


def causes(report: Report) -> list[str]:
    return [finding.cause for finding in report.findings]


# -- custom Functions -------------------------------------------------------------------------------------------------


class LinearFunction(torch.autograd.Function):
    """As in PyTorch's tutorial on extending it: without a bias, None is saved."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        ctx.save_for_backward(x, weight, bias)
        return x @ weight.T if bias is None else x @ weight.T + bias

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight, bias = ctx.saved_tensors
        return grad @ weight, grad.T @ x, None if bias is None else grad.sum(0)


class Keeps(torch.autograd.Function):
    """What is kept on ``ctx`` are attributes of the node, here by the name of what an AccumulateGrad has."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.variable = "a name"
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * 2


def test_a_function_that_saved_none_is_sound() -> None:
    model, x = nn.Linear(3, 2, bias=False), torch.ones(2, 3)
    report = gradkit.diagnose(lambda: LinearFunction.apply(x, model.weight).sum(), model=model)
    assert report.healthy
    assert report.untried == ()
    assert "SumBackward0" in {node.label for node in report.picture.nodes}


def test_a_cut_before_a_function_that_saved_none_is_found() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2, bias=False)), torch.ones(2, 3)
    report = gradkit.diagnose(lambda: LinearFunction.apply(model[0](x).detach(), model[1].weight).sum(), model=model)
    assert causes(report) == ["detach"]
    assert report.findings[0].proof == "proven"


def test_a_function_that_keeps_a_variable_on_its_ctx_is_no_leaf() -> None:
    model, x = nn.Linear(3, 1), torch.ones(2, 3)
    assert gradkit.diagnose(lambda: Keeps.apply(model(x)).sum(), model=model).healthy


def test_a_node_is_a_leaf_by_its_type() -> None:
    weight = torch.ones(1, requires_grad=True)
    made = Keeps.apply(weight)
    node = made.grad_fn
    assert autograd_graph.leaf_of(node) is None
    assert autograd_graph.leaf_of(node.next_functions[0][0]) is weight


# -- objects of strangers' --------------------------------------------------------------------------------------------


def refuse(*_: object, **__: object) -> Any:
    raise NotImplementedError


def silent(base: type, *given: Any) -> Any:
    """An object of a subclass of one of Python's containers, which answers nothing."""
    names = "__len__ __iter__ __eq__ __ne__ __bool__ __repr__ __getitem__ __contains__ __hash__ __reversed__".split()
    names += ["items", "keys", "values", "get"] if base is dict else []
    return type(f"Silent{base.__name__}", (base,), dict.fromkeys(names, refuse))(*given)


class Odd:
    """Raises whatever it is asked."""

    __eq__ = __ne__ = __bool__ = __hash__ = __len__ = __iter__ = __getitem__ = __contains__ = refuse
    __repr__ = __str__ = __int__ = __float__ = __array__ = __call__ = __dir__ = refuse

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Everything:
    """Has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object) -> Any:
        return self


def claims(kind: type) -> Any:
    return type("Claims", (), {"__class__": property(lambda self: kind)})()


class Meta(type):
    """Of a class that can neither be compared nor hashed."""

    __eq__ = __hash__ = __instancecheck__ = __repr__ = refuse


class Mute(collections.abc.Mapping[str, int]):
    __len__ = __iter__ = __getitem__ = refuse


STRANGERS: dict[str, Callable[[], Any]] = {
    "a tuple without len": lambda: silent(tuple, [1, 2]),
    "a tuple of tensors without len": lambda: silent(tuple, [torch.ones(1)]),
    "a list without iteration": lambda: silent(list, [torch.ones(1)]),
    "a dictionary without items": lambda: silent(dict, {"a": torch.ones(1)}),
    "a set without iteration": lambda: silent(set, [1, 2]),
    "a deque without iteration": lambda: silent(collections.deque, [1, 2]),
    "a float without equality": lambda: silent(float, 2.5),
    "a text without equality": lambda: silent(str, "abc"),
    "a mapping that tells nothing": Mute,
    "an object that raises": Odd,
    "an object that has every attribute": Everything,
    "an object that claims to be a list": lambda: claims(list),
    "an object that claims to be a dictionary": lambda: claims(dict),
    "an object that claims to be a tensor": lambda: claims(torch.Tensor),
    "an object that claims to be a module": lambda: claims(nn.Linear),
    "a class without a hash": lambda: Meta("Class", (), {}),
}
strangers = pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS)


@strangers
def test_a_sound_model_may_hold(make: Callable[[], Any]) -> None:
    assert diagnosed(Pair(make())).healthy


@strangers
def test_a_cut_is_found_in_a_model_that_holds_and_is_given(make: Callable[[], Any]) -> None:
    thing = make()
    report = diagnosed(Pair(thing, cut=True), thing)
    assert causes(report) == ["detach"]
    assert report.findings[0].proof == "proven"


@strangers
def test_a_step_may_close_over(make: Callable[[], Any]) -> None:
    model, x, thing = Pair(), torch.ones(2, 3), make()
    box = [thing]

    def step(given: object = thing) -> torch.Tensor:
        _ = box, given
        return model(x, thing).sum()

    assert gradkit.diagnose(step).healthy


@strangers
def test_a_model_may_remember_in_its_forward(make: Callable[[], Any]) -> None:
    class Remembers(Pair):
        def forward(self, x: torch.Tensor, extra: object = None) -> torch.Tensor:
            self.held, self.more = thing, [thing]
            return super().forward(x)

    thing = make()
    model = Remembers()
    before = model.more
    assert diagnosed(model).healthy
    assert model.more is before


@strangers
def test_a_batch_may_hold(make: Callable[[], Any]) -> None:
    batch = {"x": torch.ones(2, 3), "extra": make()}
    assert gradkit.diagnose(Pair(), batch, loss=lambda output, _: output.sum()).healthy


NUMBERS = ("a tuple without len", "a tuple of tensors without len", "a float without equality")


@pytest.mark.parametrize("name", [name for name in STRANGERS if name not in NUMBERS])
def test_a_step_that_returns_no_loss_is_refused_in_a_sentence(name: str) -> None:
    model, thing = Pair(), STRANGERS[name]()
    with pytest.raises(GradkitError):
        gradkit.diagnose(lambda: (model(torch.ones(2, 3)), thing)[1], model=model)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_step_that_returns_numbers_in_the_place_of_a_loss_is_told_so(name: str) -> None:
    model, thing = Pair(), STRANGERS[name]()
    report = gradkit.diagnose(lambda: (model(torch.ones(2, 3)), thing)[1], model=model)
    assert len(report.findings[0].parameters) == 4
    assert not report.backward


@strangers
def test_what_is_no_optimizer_is_refused_in_a_sentence(make: Callable[[], Any]) -> None:
    model = Pair()
    with pytest.raises(GradkitError) as refused:
        gradkit.diagnose(lambda: model(torch.ones(2, 3)).sum(), model=model, optimizer=make())
    assert refused.value.key == "not_an_optimizer"


@pytest.mark.parametrize("given", [3, [3], silent(list, ["first.weight"]), object(), Odd()], ids=range(5))
def test_what_names_no_parameters_is_refused_in_a_sentence(given: Any) -> None:
    model = Pair()
    with pytest.raises(GradkitError) as refused:
        gradkit.diagnose(lambda: model(torch.ones(2, 3)).sum(), model=model, should_train=given)
    assert refused.value.key == "bad_should_train"
    assert "should_train" in refused.value.text("en")


def test_one_pattern_may_be_given_by_itself() -> None:
    model = Pair()
    report = gradkit.diagnose(lambda: model(torch.ones(2, 3)).sum(), model=model, should_train="last.*")
    assert {row.name for row in report.parameters if row.should_train} == {"last.weight", "last.bias"}


# -- modules that are not as others -----------------------------------------------------------------------------------


class KeyErrors(Pair):
    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise KeyError(name) from None


class NoArguments(Pair):
    def named_parameters(self) -> Any:
        return super().named_parameters()

    def named_modules(self) -> Any:
        return super().named_modules()

    def named_buffers(self) -> Any:
        return super().named_buffers()

    def modules(self) -> Any:
        return [self]

    def children(self) -> Any:
        raise RuntimeError


class Renames(Pair):
    def named_parameters(self, *_: Any, **__: Any) -> Iterator[Any]:
        return iter([("somewhere.else", self.first.weight)])


class Slots(Pair):
    __slots__ = ("filled", "never")

    def __init__(self) -> None:
        super().__init__()
        self.filled = torch.ones(1)


class Compares(Pair):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        return 1

    __len__ = __bool__ = __iter__ = __contains__ = __repr__ = __dir__ = refuse


class NoHash(Pair):
    def __eq__(self, other: object) -> bool:
        return self is other


class Inside(Pair):
    """Holds itself, as a part and in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Module()
        self.part._modules["back"] = self
        self.more.append(self)


@pytest.mark.parametrize("kind", [KeyErrors, NoArguments, Renames, Slots, Compares, NoHash, Inside])
def test_a_sound_model_may_be_of_a_class_that(kind: type[Pair]) -> None:
    report = diagnosed(kind())
    assert report.healthy
    assert {"first.weight", "first.bias", "last.weight", "last.bias"} <= {row.name for row in report.parameters}


@pytest.mark.parametrize("kind", [KeyErrors, NoArguments, Renames, Slots, Compares, NoHash, Inside])
def test_a_cut_is_found_in_a_model_of_a_class_that(kind: type[Pair]) -> None:
    model = kind()
    model.cut = True
    assert causes(diagnosed(model)) == ["detach"]


@pytest.mark.parametrize("twice", [False, True])
def test_modules_and_parameters_come_in_the_order_of_torch(twice: bool) -> None:
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Sequential(nn.BatchNorm1d(2), shared), nn.ModuleDict({"a": nn.Linear(2, 2)}))
    assert list(registered.modules(model, twice=twice)) == list(model.named_modules(remove_duplicate=not twice))
    names = [name for name, _ in registered.parameters(model, twice=twice)]
    assert names == [name for name, _ in model.named_parameters(remove_duplicate=not twice)]


def test_a_nested_tensor_may_go_through_the_model() -> None:
    model = nn.Linear(3, 1)
    rows = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    assert gradkit.diagnose(lambda: torch.nested.to_padded_tensor(model(rows), 0.0).sum(), model=model).healthy


class Asked:
    """A hook, a loss or a step that raises when it is asked for what it does not have."""

    def __init__(self, called: Callable[..., Any]) -> None:
        self.called = called

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self, given: Any = None) -> Any:
        return self.called(given)


def test_hooks_may_raise_when_they_are_asked() -> None:
    model = Pair()
    model.first.weight.register_hook(Asked(lambda grad: None))
    model.first.bias.register_post_accumulate_grad_hook(Asked(lambda parameter: None))
    assert diagnosed(model).healthy


def test_a_step_may_raise_when_it_is_asked() -> None:
    model = Pair()
    assert gradkit.diagnose(Asked(lambda _: model(torch.ones(2, 3)).sum()), model=model).healthy


def test_a_loss_may_raise_when_it_is_asked() -> None:
    assert gradkit.diagnose(Pair(), torch.ones(2, 3), loss=Asked(torch.sum)).healthy


def test_names_may_hold_dots_and_be_numbers() -> None:
    model = nn.Module()
    model._modules = {"a.b": nn.Linear(3, 2), 0: nn.Linear(2, 1)}
    model._parameters["c.d"] = nn.Parameter(torch.ones(1))
    first, last = model._modules.values()
    report = gradkit.diagnose(lambda: last(first(torch.ones(2, 3))).sum() * model._parameters["c.d"], model=model)
    assert report.healthy
    assert {row.name for row in report.parameters} == {"a.b.weight", "a.b.bias", "0.weight", "0.bias", "c.d"}


@pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, torch.ones(2, 3))])
def test_a_scripted_model_is_looked_at_by_its_tables(make: Callable[[nn.Module], Any]) -> None:
    model = make(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)))
    report = gradkit.diagnose(lambda: model(torch.ones(2, 3)).sum(), model=model)
    assert report.healthy
    assert {row.name for row in report.parameters} == {"0.weight", "0.bias", "1.weight", "1.bias"}


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_parameter_may_be_a_nested_tensor(layout: torch.layout) -> None:
    model = nn.Module()
    model.rows = nn.Parameter(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout))
    report = gradkit.diagnose(lambda: torch.nested.to_padded_tensor(model.rows * 2, 0.0).sum(), model=model)
    assert report.healthy


# -- errors of the step -----------------------------------------------------------------------------------------------


class MuteError(Exception):
    __str__ = __repr__ = refuse


@pytest.mark.parametrize(
    "error", [SyntaxError("boom"), SyntaxError("boom", (None, "x", None, None)), MuteError(), IndentationError()]
)  # fmt: skip
def test_an_error_of_the_step_is_told_in_a_sentence(error: Exception) -> None:
    model = Pair()

    def step() -> torch.Tensor:
        model(torch.ones(2, 3))
        raise error

    with pytest.raises(GradkitError) as told:
        gradkit.diagnose(step, model=model)
    assert type(error).__name__ in str(told.value)


@pytest.mark.parametrize("source", ["def f(:", "def f():\nx", "x = 'a"])
def test_source_that_the_step_cannot_compile_is_told_in_a_sentence(source: str) -> None:
    model = Pair()
    with pytest.raises(GradkitError) as told:
        gradkit.diagnose(lambda: (exec(source), model(torch.ones(2, 3)))[1], model=model)
    assert "Error" in str(told.value)


# -- adapters that were put in by hand --------------------------------------------------------------------------------


def injected(cut: bool = False) -> Pair:
    peft = pytest.importorskip("peft")
    model = Pair(cut=cut)
    config = peft.LoraConfig(r=2, target_modules=["first", "last"], init_lora_weights=False)
    peft.inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    model.peft_config = {"default": config}
    return model


def test_an_injected_adapter_is_active() -> None:
    assert diagnosed(injected()).healthy


def test_a_cut_beside_an_injected_adapter_is_not_laid_to_the_adapter() -> None:
    assert causes(diagnosed(injected(cut=True))) == ["detach"]


def test_a_model_that_raises_when_asked_for_its_adapters_is_not_asked() -> None:
    class Asks(Pair):
        def active_adapters(self) -> Any:
            raise ValueError("no adapter loaded")

    model = injected()
    model.__class__ = Asks
    assert diagnosed(model).healthy


def test_an_injected_adapter_that_is_not_the_one_in_use_is_named() -> None:
    model = injected()
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["first", "last"], init_lora_weights=False)
    peft.inject_adapter_in_model(config, model, adapter_name="other")
    model.peft_config = {"default": config, "other": config}
    for module in model.modules():
        if hasattr(module, "set_adapter"):
            module.set_adapter("other")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".default." in name)
    assert causes(diagnosed(model)) == ["adapter_inactive"]


# -- what breaks in gradkit itself ------------------------------------------------------------------------------------


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(attempts, "LOUD", False)
    return monkeypatch


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("broken")


def told(report: Report) -> list[str]:
    assert all(one.error == "ZeroDivisionError: broken" for one in report.untried)
    for sentence in report.limits("en"):
        assert sentence in report.text("en")
        assert "ZeroDivisionError: broken" in report.html("en", with_picture=False)
    assert len(report.limits("zh")) == len(report.untried)
    assert [one["what"] for one in report.data()["untried"]] == [one.what for one in report.untried]
    return [one.what for one in report.untried]


def test_without_the_picture_the_text_stands(quiet: pytest.MonkeyPatch) -> None:
    quiet.setattr(build, "make_picture", broken)
    report = diagnosed(Pair(cut=True))
    assert causes(report) == ["detach"]
    assert told(report) == ["picture"]
    assert all(report.graph(view).source for view in ("map", "graph"))


def test_without_the_graph_the_text_stands(quiet: pytest.MonkeyPatch) -> None:
    quiet.setattr(autograd_graph, "graph_behind", broken)
    report = diagnosed(Pair(cut=True))
    assert causes(report) == ["detach"]
    assert report.findings[0].proof == "proven"
    assert told(report) == ["graph"]


def test_without_the_rerun_the_findings_stand_unproven(quiet: pytest.MonkeyPatch) -> None:
    quiet.setattr(undo_cuts, "rerun_without_cuts", broken)
    report = diagnosed(Pair(cut=True))
    assert causes(report) == ["detach"]
    assert report.findings[0].proof != "proven"
    assert told(report) == ["replay"]


def test_without_the_mending_the_findings_stand(quiet: pytest.MonkeyPatch) -> None:
    quiet.setattr(undo_errors, "rerun_without", broken)
    model = nn.Linear(3, 3)

    def step() -> torch.Tensor:
        y = model(torch.ones(2, 3)).exp()
        z = y * 1
        y.add_(1)
        return z.sum() + y.sum()

    report = gradkit.diagnose(step, model=model)
    assert causes(report) == ["inplace_modified"]
    assert told(report) == ["mend"]


def test_without_the_hooks_tried_the_findings_stand(quiet: pytest.MonkeyPatch) -> None:
    quiet.setattr(without_hooks, "silencing_hooks", broken)
    model = Pair()
    model.first.weight.register_hook(lambda grad: grad * 0)
    assert "hooks" in told(diagnosed(model))


def test_without_further_questions_the_findings_stand(quiet: pytest.MonkeyPatch) -> None:
    quiet.setattr(lost_gradients, "gradient_faults", broken)
    model = Pair()
    report = gradkit.diagnose(lambda: (model(torch.ones(2, 3)).sum() * 0).sqrt(), model=model)
    assert told(report) == ["questions"]


def test_without_strays_and_harmless_the_report_stands(quiet: pytest.MonkeyPatch) -> None:
    quiet.setattr(optimizers, "hidden_parameters", broken)
    quiet.setattr(harmless, "harmless_stops", broken)
    report = diagnosed(Pair())
    assert report.healthy
    assert told(report) == ["strays", "harmless"]


def test_a_step_that_raises_when_it_is_run_again_leaves_the_findings(quiet: pytest.MonkeyPatch) -> None:
    model, runs = Pair(), SimpleQueue[int]()  # a list would be put back

    def step() -> torch.Tensor:
        if not runs.empty():
            raise ZeroDivisionError("broken")
        runs.put(1)
        return (model(torch.ones(2, 3)).sum() * 0).sqrt()

    report = gradkit.diagnose(step, model=model)
    assert told(report) == ["questions"]
    assert report.runs == 2


def test_what_breaks_elsewhere_is_refused_as_a_fault_of_gradkits(quiet: pytest.MonkeyPatch) -> None:
    quiet.setattr(rule_order, "findings", broken)
    model = Pair()
    weight = model.first.weight.detach().clone()
    with pytest.raises(GradkitError) as refused:
        diagnosed(model)
    assert refused.value.key == "own_fault"
    assert "ZeroDivisionError: broken" in refused.value.text("en")
    assert torch.equal(model.first.weight, weight)
    assert model.first.weight.grad is None


def test_in_our_own_tests_a_fault_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attempts.LOUD
    monkeypatch.setattr(build, "make_picture", broken)
    with pytest.raises(ZeroDivisionError):
        diagnosed(Pair())


def test_what_progress_raises_comes_through(quiet: pytest.MonkeyPatch) -> None:
    model = Pair()
    with pytest.raises(ZeroDivisionError):
        gradkit.diagnose(lambda: model(torch.ones(2, 3)).sum(), model=model, progress=broken)
