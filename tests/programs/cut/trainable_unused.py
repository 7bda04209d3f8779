"""Programs that lose the gradient by `trainable_unused`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import LABELS, Built, batch, cut, pair

# -- not connected at all ---------------------------------------------------------------------------------------------


@cut("trainable_unused")
def a_layer_that_is_never_called() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.extra = nn.Linear(4, 1)  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("trainable_unused")
def an_entry_of_a_dictionary_that_is_never_called_in_a_class_of_the_same_name() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 1), "b": nn.Linear(4, 1)})  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.heads["a"](x).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


class Seeing(nn.Module):
    """Reads an image if it is given one; the flag picks the way in which that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.head, self.eye = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 4)

    def encode(self, image: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.eye(image))

    def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:
        h = self.text(x)
        if image is not None:
            image = image.float()
            h = h + self.encode(image)
        return self.head(h).sum()


class SeeingOrReturning(Seeing):
    """Returns early without an image."""

    def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:
        h = self.text(x)
        if not isinstance(x, torch.Tensor) or image is None:
            return self.head(h).sum()
        return self.head(h + self.eye(image)).sum()


class SeeingInALine(Seeing):
    """Decides in an expression."""

    def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:
        seen = self.eye(image) if image is not None else 0.0
        return self.head(self.text(x) + seen).sum()


class SeeingBatches(Seeing):
    """Is given a whole batch."""

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        h, image = self.text(batch["x"]), batch.get("image")
        if image is not None and image.shape[0] > 0:
            h = h + self.eye(image)
        return self.head(h).sum()


class SeeingAround(nn.Module):
    """Hands on what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Seeing()

    def forward(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        return self.inner(x, **options) * 2.0


class SeeingThrough(SeeingAround):
    """Hands on what it is given, by name."""

    def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:  # type: ignore[override]
        return self.inner(x, image=image) * 2.0


@cut("trainable_unused")
def a_layer_for_an_argument_that_is_not_given() -> Built:
    model, x = Seeing(), batch()

    def step() -> torch.Tensor:
        return model(  # CUT
            x,
        )

    return model, step


@cut("trainable_unused")
def a_layer_for_an_argument_that_is_given_as_none() -> Built:
    model, x = SeeingOrReturning(), batch()

    def step() -> torch.Tensor:
        return model(
            x,
            None,  # CUT
        )

    return model, step


@cut("trainable_unused")
def a_layer_for_an_argument_that_turns_out_to_be_none() -> Built:
    model, x, dry = SeeingInALine(), batch(), True
    return model, lambda: model(x, image=None if dry else x)  # CUT


@cut("trainable_unused")
def a_layer_for_an_argument_that_a_wrapper_hands_on() -> Built:
    model, x = SeeingThrough(), batch()
    return model, lambda: model(x)  # CUT


@cut("trainable_unused")
def a_layer_for_an_argument_that_a_dictionary_lacks() -> Built:
    model = Seeing()
    given = {"x": batch()}  # CUT
    return model, lambda: model(**given)


@cut("trainable_unused")
def a_layer_for_a_key_that_a_function_leaves_out() -> Built:
    model, x = SeeingBatches(), batch()

    def prepared() -> dict[str, Any]:
        out = dict(x=x * 1.0)  # noqa: C408  # CUT
        return out  # noqa: RET504

    def step() -> torch.Tensor:
        given = prepared()
        return model(given)

    return model, step


@cut("trainable_unused")
def a_layer_for_a_key_that_the_step_takes_out() -> Built:
    model, x = SeeingBatches(), batch()

    def step() -> torch.Tensor:
        given = {"x": x, "image": x}
        if len(x) > 1:
            given.pop("image")  # CUT
        return model(given)

    return model, step


@cut("trainable_unused")
def a_layer_for_a_key_that_the_collate_function_leaves_out() -> Built:
    def collated(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        return {"x": torch.stack([row["x"] for row in rows])}  # CUT

    rows = [{"x": row, "image": row} for row in batch()]
    loader = torch.utils.data.DataLoader(rows, batch_size=3, collate_fn=collated)  # type: ignore[arg-type]
    model = Seeing()

    def step() -> torch.Tensor:
        loss = torch.zeros(())
        for given in loader:
            loss = loss + model(**given)
        return loss

    return model, step


@cut("trainable_unused")
def a_layer_for_an_argument_that_is_given_and_of_no_use() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text, self.deep = nn.Linear(4, 1), nn.Linear(4, 1)  # CUT

        def forward(self, x: torch.Tensor, image: torch.Tensor | None = None) -> torch.Tensor:
            out = self.text(x)
            if image is not None and image.shape[0] > 99:
                out = out + self.deep(image)
            return out.sum()

    model, x = Model(), batch()
    return model, lambda: model(x, x)


@cut("trainable_unused")
def a_layer_of_a_class_of_its_own_for_an_argument_that_is_not_given() -> Built:
    class Projector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text, self.projectors = nn.Linear(4, 1), nn.ModuleList([Projector(), Projector()])

        def forward(self, x: torch.Tensor, images: list[torch.Tensor] = ()) -> torch.Tensor:
            out = self.text(x)
            for image, projector in zip(images, self.projectors, strict=False):
                out = out + projector(image).sum(1, keepdim=True)
            if len(images) > 0:
                out = out / len(images)
            return out.sum()

    model, x = Model(), batch()
    return model, lambda: model(x)  # CUT


@cut("trainable_unused")
def a_layer_for_an_argument_that_no_call_gives() -> Built:
    model, x = SeeingAround(), batch()

    def step() -> torch.Tensor:
        first = model(x)  # CUT
        return first + model(x)

    return model, step


@cut("trainable_unused")
def a_layer_attached_to_a_model_that_knows_nothing_of_it() -> Built:
    model, x = pair(), batch()
    model["outer"].attached_later = nn.Linear(4, 1)  # CUT
    return model, lambda: model["outer"](model["inner"](x)).sum()


@cut("trainable_unused")
def a_layer_put_into_a_slot_that_the_forward_ignores() -> Built:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(4, 4)
            self.processor = None

    class Alone(Attention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query = self.query(x)
            return torch.softmax(query, -1)  # CUT

    class Processor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Linear(4, 2)
            self.up = nn.Linear(2, 4)

    model, x = nn.Sequential(Alone(), nn.Linear(4, 1)), batch()
    model[0].processor = Processor()
    return model, lambda: model(x).sum()


# -- several backwards in a step --------------------------------------------------------------------------------------


@cut("trainable_unused")
def a_layer_handed_to_a_wrapper_that_never_calls_it() -> Built:
    class Wrapper(nn.Module):
        def __init__(self, body: nn.Module, spare: nn.Module) -> None:
            super().__init__()
            self.body = body
            self.spare = spare

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x).sum()

    def built() -> nn.Module:
        return Wrapper(
            nn.Linear(4, 2),
            spare=nn.Linear(4, 2),  # CUT
        )

    model, x = built(), batch()
    return model, lambda: model(x)


class Keeping(nn.Module):
    """Holds a layer that it does not call."""

    def __init__(self, spare: nn.Module, freeze: bool = False, name: str = "spare") -> None:
        super().__init__()
        self.layer, self.name = nn.Linear(4, 1), name
        self.spare = spare
        if freeze:
            self.spare.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum()


def kept_and_frozen() -> nn.Module:
    """Not called: it stands for what the programs below might have been built by."""
    return Keeping(nn.Linear(4, 2), freeze=True)


@cut("trainable_unused")
def a_layer_handed_over_at_one_of_several_calls_told_by_a_flag_that_would_have_frozen_it() -> Built:
    model, x = Keeping(nn.Linear(4, 2)), batch()  # CUT
    return model, lambda: model(x)


@cut("trainable_unused")
def a_layer_handed_over_at_one_of_several_calls_told_by_what_else_was_handed_over() -> Built:
    model, x = Keeping(nn.Linear(4, 2), name="other"), batch()  # CUT
    return model, lambda: model(x)


@cut("trainable_unused")
def a_layer_handed_over_at_one_of_several_calls_told_by_its_size() -> Built:
    model, x = Keeping(nn.Linear(4, 3)), batch()  # CUT
    return model, lambda: model(x)


@cut("trainable_unused")
def a_layer_handed_over_at_one_of_several_calls_told_by_its_kind() -> Built:
    model, x = Keeping(nn.LayerNorm(4)), batch()  # CUT
    return model, lambda: model(x)


# -- a layer that is gone past ----------------------------------------------------------------------------------------


class Beside(nn.Module):
    """A frozen layer, and a narrow one beside it that is to learn."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.narrow = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False))

    @property
    def weight(self) -> torch.Tensor:
        return self.base.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.narrow(x)


def adapted(forward: Callable[[Any, torch.Tensor], torch.Tensor]) -> Built:
    model = pair()
    model["inner"], x = Beside(model["inner"]), batch()
    return model, lambda: model["outer"](forward(model["inner"], x).tanh()).sum()


@cut("trainable_unused")
def an_adapter_whose_weight_is_read_past_it() -> Built:
    return adapted(lambda layer, x: F.linear(x, layer.weight))  # CUT


@cut("trainable_unused")
def an_adapter_whose_base_is_called_by_itself() -> Built:
    return adapted(lambda layer, x: layer.base(x))  # CUT


@cut("trainable_unused")
def an_adapter_whose_weight_is_read_under_a_name_of_its_own() -> Built:
    def forward(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        table = layer.weight  # CUT
        return torch.stack([x[:3] @ table.t(), x[3:] @ table.t()])

    return adapted(forward)


@cut("trainable_unused")
def adapters_whose_weights_are_joined_to_one() -> Built:
    def forward(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([layer.weight, layer.weight])  # CUT
        return F.linear(x, both)[:, :4]

    return adapted(forward)


@cut("trainable_unused")
def an_adapter_in_a_hook_on_a_layer_that_is_gone_past() -> Built:
    model, x = pair(side=nn.Linear(4, 4)), batch()
    model["inner"].requires_grad_(False)

    def add(layer: nn.Module, given: tuple[torch.Tensor], out: torch.Tensor, side: nn.Module = model["side"]) -> Any:
        return out + side(*given)

    model["inner"].register_forward_hook(add)
    return model, lambda: model["outer"](F.linear(x, model["inner"].weight).tanh()).sum()  # CUT


@cut("trainable_unused")
def a_layer_that_is_not_called_and_whose_weight_is_penalized() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.extra = nn.Linear(4, 1)  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).sum() + 0.1 * self.extra.weight.norm()

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("trainable_unused")
def a_bias_beside_a_matrix_that_another_layer_shares() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(5, 4)
            self.score = nn.Linear(4, 5)  # CUT
            self.score.weight = self.words.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.words(ids).pow(2).sum()

    model = Model()
    return model, lambda: model(LABELS)
