"""A Parameter that a class is handed and keeps as something else: the line that keeps it is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.types import Report
from tests.marks import line_ending


class Part(nn.Module):
    def __init__(self, **features: Any) -> None:
        super().__init__()
        for name, value in features.items():
            self.keep(name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain + self.offset


class Buffered(Part):
    def keep(self, name: str, value: Any) -> None:
        self.register_buffer(name, torch.as_tensor(value))  # Buffered


class ByHand(Part):
    def keep(self, name: str, value: Any) -> None:
        self.__dict__[name] = value  # ByHand


class Past(Part):
    def keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # Past


class AllAtOnce(Part):
    def __init__(self, **features: Any) -> None:
        super().__init__()
        vars(self).update(features)  # AllAtOnce


class Copied(Part):
    def keep(self, name: str, value: Any) -> None:
        setattr(self, name, torch.as_tensor(value).detach().clone())  # Copied


class Named(nn.Module):
    def __init__(self, gain: nn.Parameter, offset: nn.Parameter) -> None:
        super().__init__()
        self.register_buffer("gain", gain)  # Named
        self.offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain + self.offset


class Kept(Part):
    def keep(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Parameter):
            self.register_parameter(name, value)
        else:
            self.register_buffer(name, torch.as_tensor(value))


@dataclass
class Settings:
    gain: torch.Tensor
    offset: float


class Configured(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings  # Configured

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.settings.gain + self.settings.offset


class Line(nn.Module):
    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


def _diagnosed(kind: Callable[..., nn.Module], name: str) -> Report:
    torch.manual_seed(0)
    made = {"gain": nn.Parameter(torch.ones(3)), "offset": nn.Parameter(torch.zeros(3))}
    return _of(kind(**made), name)


def _of(part: nn.Module, name: str) -> Report:
    model, x = Line([nn.Linear(3, 3), part]), torch.randn(5, 3)
    return gradkit.diagnose(lambda: model(x).pow(2).mean(), model=model, should_train=["parts.0.*", name])


@pytest.mark.parametrize("kind", [Buffered, ByHand, Past, AllAtOnce, Copied, Named])
def test_the_line_that_keeps_a_parameter_as_something_else_is_named(kind: type[nn.Module]) -> None:
    found = _diagnosed(kind, "parts.1.gain").findings
    assert [(one.cause, one.location.line) for one in found] == [
        ("unregistered_parameters", line_ending(__file__, kind.__name__))
    ]


def test_settings_that_hold_a_parameter_are_named_where_the_module_takes_them_in() -> None:
    settings = Settings(nn.Parameter(torch.ones(3)), 0.0)
    found = _of(Configured(settings), "parts.1.settings.gain").findings
    assert [(one.cause, one.location.line) for one in found] == [
        ("unregistered_parameters", line_ending(__file__, "Configured"))
    ]


def test_a_class_that_registers_its_parameters_and_buffers_the_rest_is_sound() -> None:
    assert _diagnosed(Kept, "parts.1.gain").findings == ()


def test_where_the_parameter_was_made_is_told_beside() -> None:
    part = Buffered(gain=nn.Parameter(torch.ones(3)), offset=torch.zeros(3))  # made
    (found,) = _of(part, "parts.1.gain").findings
    assert [(note.kind, note.location.line) for note in found.notes] == [("made_here", line_ending(__file__, "made"))]


class Store:
    """An object that is no module, with a table and a list that are empty at first."""

    def __init__(self) -> None:
        self.table: dict[str, torch.Tensor] = {}
        self.rows: list[torch.Tensor] = []

    def put(self, name: str, value: torch.Tensor) -> None:
        self.table[name] = value


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.fill()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.store.table["w"]


class ByKey(Holder):
    def fill(self) -> None:
        self.store.table["b"] = torch.zeros(3)
        self.store.table["w"] = nn.Parameter(torch.ones(3))  # ByKey


class ByDefault(Holder):
    def fill(self) -> None:
        self.store.table.setdefault("w", nn.Parameter(torch.ones(3)))  # ByDefault


class ByUpdate(Holder):
    def fill(self) -> None:
        self.store.table.update(w=nn.Parameter(torch.ones(3)))  # ByUpdate


class ByMethod(Holder):
    def fill(self) -> None:
        self.store.put("w", nn.Parameter(torch.ones(3)))  # ByMethod


class InAList(Holder):
    def fill(self) -> None:
        self.store.rows.append(nn.Parameter(torch.ones(3)))  # InAList

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.store.rows[0]


class Owned(Holder):
    def fill(self) -> None:
        self.weight = nn.Parameter(torch.ones(3))
        self.store.table["w"] = self.weight


@pytest.mark.parametrize("kind", [ByKey, ByDefault, ByUpdate, ByMethod, InAList])
def test_what_is_put_into_an_object_that_is_no_module_is_named_where_it_is_put(kind: type[nn.Module]) -> None:
    model, x = Line([nn.Linear(3, 3), kind()]), torch.randn(5, 3)
    found = gradkit.diagnose(lambda: model(x).pow(2).mean(), model=model).findings
    assert [(one.cause, one.location.line) for one in found] == [
        ("unregistered_parameters", line_ending(__file__, kind.__name__))
    ]


def test_a_parameter_that_a_module_owns_may_lie_in_such_an_object_as_well() -> None:
    model, x = Line([nn.Linear(3, 3), Owned()]), torch.randn(5, 3)
    assert gradkit.diagnose(lambda: model(x).pow(2).mean(), model=model).findings == ()


class Gates(nn.Module):
    """Tables of Parameters under names that are put together."""

    def __init__(self, table: type) -> None:
        super().__init__()
        self.kind = table
        for gate in "if":
            setattr(self, f"w_{gate}", self._table(lambda: torch.randn(2, 2)))

    def _table(self, make: Callable[[], torch.Tensor]) -> Any:
        return self.kind({name: nn.Parameter(make()) for name in "xy"})  # Gates

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((x @ getattr(self, f"w_{gate}")[name]).sigmoid() for gate in "if" for name in "xy")


def test_a_table_under_a_name_that_is_put_together_is_named_where_it_is_made() -> None:
    net = Gates(dict)
    (finding,) = gradkit.diagnose(lambda: net(torch.ones(1, 2)).sum(), model=net).findings
    assert finding.cause == "unregistered_parameters"
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "Gates")


def test_the_same_table_as_a_parameter_dict_is_sound() -> None:
    net = Gates(nn.ParameterDict)
    assert gradkit.diagnose(lambda: net(torch.ones(1, 2)).sum(), model=net).healthy


class Boxed(nn.Module):
    """Layers in an object that is no module, or in a variable of a function."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        if kind == "namespace":
            self.heads = SimpleNamespace()  # a namespace
            setattr(self.heads, f"{kind}_head", nn.Linear(2, 2))
        elif kind == "closure":
            self.ops = [through(nn.Linear(2, 2))]  # a closure
        elif kind == "registered closure":
            self.ops = [through(self.inner)]
        else:
            self.parts = self.build()

    def build(self) -> dict[str, nn.Module]:
        return {name: MAKERS[name]() for name in MAKERS}  # a registry

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        for held in (getattr(self, "heads", None), *getattr(self, "ops", ()), *getattr(self, "parts", {}).values()):
            x = held.namespace_head(x) if isinstance(held, SimpleNamespace) else held(x) if held is not None else x
        return x


def through(layer: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: layer(x).tanh()


MAKERS: dict[str, Callable[[], nn.Module]] = {"a": lambda: nn.Linear(2, 2), "b": nn.Tanh}


@pytest.mark.parametrize("kind", ["namespace", "closure", "registry"])
def test_layers_in_a_box_of_no_modules_are_named_where_the_box_is_made(kind: str) -> None:
    net = Boxed(kind)
    (finding,) = gradkit.diagnose(lambda: net(torch.ones(1, 2)).sum(), model=net).findings
    assert finding.cause == "unregistered_parameters"
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, f"a {kind}")


def test_a_closure_over_a_layer_that_is_registered_is_sound() -> None:
    net = Boxed("registered closure")
    assert gradkit.diagnose(lambda: net(torch.ones(1, 2)).sum(), model=net).healthy


class Projection:  # a class of its own
    """A head that somebody has forgotten to derive from ``nn.Module``."""

    def __init__(self) -> None:
        self.proj = nn.Linear(2, 1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x)


class Headed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 2), Projection()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def test_a_class_with_a_forward_that_is_no_module_is_named_by_its_heading() -> None:
    net = Headed()
    report = gradkit.diagnose(lambda: net(torch.ones(1, 2)).sum(), model=net)
    (finding,) = report.findings
    assert (finding.cause, finding.variant) == ("unregistered_parameters", "no_module")
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "a class of its own")
    assert "derive the class from nn.Module" in report.text("en")
    assert "继承 nn.Module" in report.text("zh")


class Scaled(nn.Module):
    """A Parameter that a plain number stands in for unless it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.scale = self.shift = 1
        if self.body.bias is not None:
            self.scale = nn.Parameter(torch.ones(2))  # scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * self.shift


def test_a_parameter_that_a_number_stands_in_for_is_defined_where_it_is_made() -> None:
    net = Scaled()
    (finding,) = gradkit.diagnose(lambda: net(torch.ones(1, 2)).sum(), model=net).findings
    assert finding.cause == "trainable_unused"
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "scale")
