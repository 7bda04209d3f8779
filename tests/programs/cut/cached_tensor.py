"""Programs that lose the gradient by `cached_tensor`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, cut, pair

# -- values kept from an earlier run that recorded nothing ------------------------------------------------------------


@cut("cached_tensor")
def a_dictionary_of_an_object_that_validation_filled() -> Built:
    class Cast:
        def __init__(self) -> None:
            self.store: dict[int, torch.Tensor] = {}

        def __call__(self, parameter: torch.Tensor) -> torch.Tensor:
            if id(parameter) not in self.store:
                self.store[id(parameter)] = parameter.to(torch.bfloat16)  # CUT
            return self.store[id(parameter)]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer, self.cast = nn.Linear(4, 4), nn.Linear(4, 2), Cast()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight, bias = self.cast(self.inner.weight), self.cast(self.inner.bias)
            return self.outer(F.linear(x.bfloat16(), weight, bias).float()).sum()

    model, x = Net(), batch()
    with torch.no_grad():
        model(x)
    return model, lambda: model(x)


@cut("cached_tensor")
def a_dictionary_that_a_function_closes_over() -> Built:
    model, x = pair(), batch()
    codes: dict[str, torch.Tensor] = {}

    def encode(name: str) -> torch.Tensor:
        if name not in codes:
            code = torch.tanh(model["inner"](x))
            codes[name] = code  # CUT
        return codes[name]

    @torch.no_grad()
    def evaluate() -> float:
        return float(model["outer"](encode("all")).mean())

    evaluate()
    return model, lambda: model["outer"](encode("all")).pow(2).mean()


@cut("cached_tensor")
def a_dictionary_of_pairs_filled_in_inference_mode() -> Built:
    class Prompt:
        def __init__(self, inner: nn.Module) -> None:
            self.inner, self.past = inner, {}

        def keys_and_values(self, x: torch.Tensor) -> Any:
            pair = self.past.get("layer")
            if pair is None:
                keys, values = self.inner(x).chunk(2, -1)
                self.past["layer"] = pair = (keys, values)  # CUT
            return pair

    model, x = pair(), batch()
    prompt = Prompt(model["inner"])

    def attend() -> torch.Tensor:
        keys, values = prompt.keys_and_values(x)
        return model["outer"](torch.cat([keys.clone(), values.clone()], -1)).sum()

    with torch.inference_mode():
        attend()
    return model, attend


@cut("cached_tensor")
def a_list_filled_once_for_every_layer() -> Built:
    model, x = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), batch()
    bank: list[torch.Tensor] = []

    def features() -> list[torch.Tensor]:
        if not bank:
            bank.extend(layer(x) for layer in model[:2])  # CUT
        return bank

    with torch.no_grad():
        features()
    return model, lambda: model[2](sum(features())).pow(2).mean()


@cut("cached_tensor")
def a_list_with_a_place_for_each_step() -> Built:
    model, x = pair(), batch()
    slots: list[torch.Tensor | None] = [None] * 4

    def at(index: int) -> torch.Tensor:
        if slots[index] is None:
            slots[index] = model["inner"](x[index])  # CUT
        return slots[index]

    with torch.no_grad():
        [at(index) for index in range(4)]
    return model, lambda: model["outer"](torch.stack([at(index) for index in range(4)])).sum()


@cut("cached_tensor")
def a_variable_of_the_function_around() -> Built:
    model, x = pair(), batch()
    code: torch.Tensor | None = None

    def encode() -> torch.Tensor:
        nonlocal code
        if code is None:
            code = model["inner"](x)  # CUT
        return code

    with torch.no_grad():
        encode()
    return model, lambda: model["outer"](encode()).sum()


_CODE: torch.Tensor | None = None


@cut("cached_tensor")
def a_global_variable() -> Built:
    global _CODE
    model, x = pair(), batch()

    def encode() -> torch.Tensor:
        global _CODE
        if _CODE is None:
            _CODE = model["inner"](x)  # CUT
        return _CODE

    _CODE = None
    with torch.no_grad():
        encode()
    return model, lambda: model["outer"](encode()).sum()


@cut("cached_tensor")
def an_attribute_of_a_trainer() -> Built:
    class Trainer:
        def __init__(self, model: nn.ModuleDict) -> None:
            self.model, self.prototypes, self.x = model, None, batch()

        def anchors(self) -> torch.Tensor:
            if self.prototypes is None:
                self.prototypes = self.model["inner"](self.x).mean(0, keepdim=True)  # CUT
            return self.prototypes

        @torch.no_grad()
        def validate(self) -> float:
            return self.loss().item()

        def loss(self) -> torch.Tensor:
            return (self.model["outer"](self.anchors()) - self.x[:, :1]).pow(2).mean()

    trainer = Trainer(pair())
    trainer.validate()
    return trainer.model, trainer.loss


@cut("cached_tensor")
def an_attribute_that_is_there_only_once_it_is_filled() -> Built:
    class Holder:
        pass

    model, x, holder = pair(), batch(), Holder()

    def encode() -> torch.Tensor:
        if not hasattr(holder, "code"):
            holder.code = model["inner"](x)  # CUT
        return holder.code

    with torch.no_grad():
        encode()
    return model, lambda: model["outer"](encode()).sum()


@cut("cached_tensor")
def an_attribute_of_a_class() -> Built:
    class Codes:
        kept: ClassVar[dict[str, torch.Tensor]] = {}

        @classmethod
        def of(cls, name: str, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return cls.kept[name] if name in cls.kept else cls.kept.setdefault(name, layer(x))  # CUT

    model, x = pair(), batch()
    with torch.no_grad():
        Codes.of("a", model["inner"], x)
    return model, lambda: model["outer"](Codes.of("a", model["inner"], x)).sum()


@cut("cached_tensor")
def a_default_argument_that_remembers() -> Built:
    model, x = pair(), batch()

    def encode(name: str, seen: dict[str, torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006
        try:
            return seen[name]
        except KeyError:
            seen[name] = model["inner"](x)  # CUT
            return seen[name]

    with torch.no_grad():
        encode("a")
    return model, lambda: model["outer"](encode("a")).sum()


@cut("cached_tensor")
def a_function_with_a_cache_of_functools() -> Built:
    model, x = pair(), batch()

    @functools.lru_cache(maxsize=8)  # CUT
    def encode(row: int) -> torch.Tensor:
        return model["inner"](x[row])

    with torch.no_grad():
        encode(0), encode(1)
    return model, lambda: model["outer"](torch.stack([encode(0), encode(1)])).sum()


@cut("cached_tensor")
def a_method_with_a_cache_of_functools() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(5, 4), nn.Linear(4, 1)

        @functools.cache  # noqa: B019  # CUT
        def entity(self, number: int) -> torch.Tensor:
            return torch.tanh(self.table(torch.tensor([number])))

        def forward(self, number: int) -> torch.Tensor:
            return self.out(self.entity(number)).sum()

    model = Net()
    with torch.no_grad():
        model(3)
    return model, lambda: model(3)


@cut("cached_tensor")
def a_property_that_is_computed_once() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)
            self.register_buffer("x", batch())

        @functools.cached_property  # CUT
        def code(self) -> torch.Tensor:
            return self.inner(self.x)

        def forward(self) -> torch.Tensor:
            return self.outer(self.code).sum()

    model = Net()
    with torch.no_grad():
        model()
    return model, model


@cut("cached_tensor")
def a_decorator_of_the_users_that_remembers() -> Built:
    def remembered(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        memory: dict[Any, torch.Tensor] = {}

        @functools.wraps(function)
        def wrapper(*args: Any) -> torch.Tensor:
            if args not in memory:
                memory[args] = function(*args)  # CUT
            return memory[args]

        return wrapper

    model, x = pair(), batch()

    @remembered
    def encode(row: int) -> torch.Tensor:
        code = model["inner"](x[row])
        return torch.relu(code)

    with torch.no_grad():
        encode(0)
    return model, lambda: model["outer"](encode(0)).sum()


@cut("cached_tensor")
def an_attribute_of_the_parameter_itself() -> Built:
    model, x = pair(), batch()

    def half(parameter: Any) -> torch.Tensor:
        if getattr(parameter, "half_copy", None) is None:
            parameter.half_copy = parameter.bfloat16()  # CUT
        return parameter.half_copy

    def step() -> torch.Tensor:
        return (
            model["outer"](F.linear(x.bfloat16(), half(model["inner"].weight)).float()).sum()
            + model["inner"].bias.sum()
        )

    with torch.no_grad():
        step()
    return model, step


@cut("cached_tensor")
def a_cache_that_the_step_itself_fills_detached() -> Built:
    model, x = pair(), batch()
    codes: dict[str, torch.Tensor] = {}

    def encode() -> torch.Tensor:
        if "x" not in codes:
            codes["x"] = model["inner"](x).detach()  # CUT
        return codes["x"]

    encode()
    return model, lambda: model["outer"](encode()).sum()


@cut("cached_tensor")
def two_attributes_that_one_condition_guards() -> Built:
    class Memory:
        keys: torch.Tensor | None = None
        values: torch.Tensor | None = None

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.to_keys, self.to_values = nn.Linear(4, 4), nn.Linear(4, 4)
            self.query, self.memory = nn.Linear(4, 4), Memory()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.memory.values is None:
                self.memory.keys = self.to_keys(x)  # CUT
                self.memory.values = self.to_values(x)  # CUT
            weights = (self.query(x) @ self.memory.keys.T).softmax(-1)
            return (weights @ self.memory.values).pow(2).mean()

    model, x = Net(), batch()
    with torch.no_grad():
        model(x)
    return model, lambda: model(x)


@cut("cached_tensor")
def features_precomputed_by_a_layer_that_should_train() -> Built:
    model, x = pair(), batch()
    with torch.no_grad():
        features = model["inner"](x)  # CUT
    return model, lambda: model["outer"](features).sum()


@cut("cached_tensor")
def features_precomputed_into_a_list_by_a_loop() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    model, rows = Net(), batch()
    features = []
    with torch.no_grad():
        for row in rows:
            code = model.backbone(row)
            features.append(code)  # CUT
    return model, lambda: model.head(torch.stack(features)).sum()


@cut("cached_tensor")
def codes_that_a_decorator_keeps_under_a_name_that_it_makes() -> Built:
    def memo(method: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        name = "_memo_" + method.__name__

        @functools.wraps(method)
        def wrapper(self: Any) -> torch.Tensor:
            if name not in self.__dict__:
                self.__dict__[name] = method(self)  # CUT
            return self.__dict__[name]

        return wrapper

    class Trainer:
        def __init__(self, model: nn.ModuleDict) -> None:
            self.model, self.x = model, batch()

        @memo
        def codes(self) -> torch.Tensor:
            return torch.relu(self.model["inner"](self.x))

        def loss(self) -> torch.Tensor:
            return self.model["outer"](self.codes()).sum()

    trainer = Trainer(pair())
    with torch.no_grad():
        trainer.loss()
    return trainer.model, trainer.loss


@cut("cached_tensor")
def codes_kept_by_setattr_under_a_name_that_is_worked_out() -> Built:
    class Trainer:
        def __init__(self, model: nn.ModuleDict) -> None:
            self.model, self.x = model, batch()

        def of(self, part: str) -> torch.Tensor:
            key = f"{part}_codes"
            if not hasattr(self, key):
                setattr(self, key, torch.relu(self.model[part](self.x)))  # CUT
            return getattr(self, key)

        def loss(self) -> torch.Tensor:
            return self.model["outer"](self.of("inner")).sum()

    trainer = Trainer(pair())
    with torch.no_grad():
        trainer.loss()
    return trainer.model, trainer.loss


@cut("cached_tensor")
def features_that_an_epoch_counter_keeps() -> Built:
    class Trainer:
        def __init__(self, model: nn.ModuleDict) -> None:
            self.model, self.epoch, self.x = model, 0, batch()

        def encode(self) -> torch.Tensor:
            if self.epoch == 0:
                self.codes = torch.relu(self.model["inner"](self.x))  # CUT
                self.epoch = 1
            return self.codes

        def loss(self) -> torch.Tensor:
            return self.model["outer"](self.encode()).sum()

    trainer = Trainer(pair())
    with torch.no_grad():
        trainer.loss()
    return trainer.model, trainer.loss


# -- the loss itself, from before the step ----------------------------------------------------------------------------


@cut("cached_tensor")
def a_loss_computed_before_the_step() -> Built:
    model, x = pair(), batch()
    loss = model["outer"](model["inner"](x).detach()).pow(2).mean()
    return model, lambda: loss  # CUT


@cut("cached_tensor")
def half_of_a_loss_computed_before_the_step_and_handed_on() -> Built:
    model, x = pair(), batch()
    losses = [model["outer"](x).mean()]

    def step() -> torch.Tensor:
        model["outer"](model["inner"](x))
        return losses[-1] / 2  # CUT

    return model, step
