"""Programs that lose the gradient by `unused_input`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tests.programs.shared import Built, batch, cut, pair, small

# -- the loss itself --------------------------------------------------------------------------------------------------


@cut("unused_input")
def a_derivative_that_a_helper_takes_by_a_slice_of_what_went_into_the_net() -> Built:
    model, x = pair(), batch()

    def slope(value: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value.sum(), place, create_graph=True)[0]

    def step() -> torch.Tensor:
        points = x.clone().requires_grad_()
        place = points[:, :1]  # CUT
        return slope(model["outer"](model["inner"](points).tanh()), place).square().mean()

    return model, step


# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("unused_input")
def a_noise_that_the_closure_leaves_aside() -> Built:
    model, x = small(), batch()

    def attack(evaluate: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        noise = torch.zeros_like(x).requires_grad_()
        loss = evaluate(x + noise)
        (slope,) = torch.autograd.grad(loss, noise)
        return evaluate(x + slope.sign())

    def evaluate(_moved: torch.Tensor) -> torch.Tensor:
        return model(x).sum()  # CUT

    return model, lambda: attack(evaluate)


@cut("unused_input")
def a_gradient_of_an_image_that_was_copied_before() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        out = model(x.clone().requires_grad_()).sum()
        image = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(out, image, create_graph=True)  # CUT
        return slope.pow(2).sum()

    return model, step


@cut("unused_input")
def a_second_derivative_by_a_value_that_the_first_leaves_aside() -> Built:
    model, x, other = small(), batch().requires_grad_(), batch().requires_grad_()

    def step() -> torch.Tensor:
        energy = model(x).tanh().sum() + 0 * other.sum().detach()
        (first,) = torch.autograd.grad(energy, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), other)  # CUT
        return (first * second).sum()

    return model, step


# -- computed a second time -------------------------------------------------------------------------------------------


@cut("unused_input")
def a_derivative_by_what_a_property_computes_anew() -> Built:
    class Places:
        def __init__(self, share: torch.Tensor) -> None:
            self.share = share

        @property
        def scaled(self) -> torch.Tensor:
            return self.share * 3

    model, x = small(), batch()

    def step() -> torch.Tensor:
        places = Places(x.clone().requires_grad_())
        energy = model(places.scaled).sum()
        return torch.autograd.grad(energy, places.scaled, create_graph=True)[0].square().mean()  # CUT

    return model, step


@cut("unused_input")
def a_derivative_by_a_copy_that_a_helper_makes_once_more() -> Built:
    model, x = small(), batch()

    def moved(points: torch.Tensor) -> torch.Tensor:
        return points.clone()

    def step() -> torch.Tensor:
        points = x.clone().requires_grad_()
        energy = model(moved(points)).sum()
        again = moved(points)  # CUT
        return torch.autograd.grad(energy, again, create_graph=True)[0].square().mean()

    return model, step


@cut("unused_input")
def a_derivative_by_a_part_that_is_taken_where_it_is_asked_for() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        points = x.clone().requires_grad_()
        energy = model(points).sum()
        (slope,) = torch.autograd.grad(
            energy,
            points.reshape(-1),  # CUT
            create_graph=True,
        )
        return slope.square().mean()

    return model, step


# -- what never required grad -----------------------------------------------------------------------------------------


@cut("unused_input")
def distances_that_were_kept_with_a_graph_before_its_positions_required_grad() -> Built:
    model, at = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)), batch()
    graph = {"at": at, "apart": (at[1:] - at[:-1]).norm(dim=1)}

    def distances(graph: dict[str, torch.Tensor]) -> torch.Tensor:
        return graph["apart"]  # CUT

    def step() -> torch.Tensor:
        graph["at"].requires_grad_()
        energy = model(distances(graph)[:, None]).sum()
        return torch.autograd.grad(energy, graph["at"], create_graph=True)[0].square().mean()

    return model, step


@cut("unused_input")
def a_forward_that_is_handed_positions_and_takes_their_distances() -> Built:
    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(1, 1)

        def forward(self, at: torch.Tensor, apart: torch.Tensor) -> torch.Tensor:
            return self.out(apart.unsqueeze(1)).square().sum()

    model, at = Energy(), batch()
    apart = at[1:].norm(dim=1)  # CUT

    def step() -> torch.Tensor:
        at.requires_grad_()
        return torch.autograd.grad(model(at, apart), at, create_graph=True)[0].square().mean()

    return model, step


@cut("unused_input")
def a_noise_of_one_row_that_is_not_added() -> Built:
    model, x, noise = small(), batch(), torch.zeros(1, 4)

    def step() -> torch.Tensor:
        noise.requires_grad_()
        out = model(x).sum()  # CUT
        return torch.autograd.grad(out, noise, create_graph=True)[0].square().mean()

    return model, step


@cut("unused_input")
def distances_that_a_helper_computes_before_positions_require_grad() -> Built:
    model, places = small(), batch()

    def distances(at: torch.Tensor) -> torch.Tensor:
        return (at - at.mean(0)).abs()

    def step() -> torch.Tensor:
        at = places.clone()
        apart = distances(at)
        at.requires_grad_()  # CUT
        (force,) = torch.autograd.grad(model(apart).sum(), at, create_graph=True)
        return force.square().mean()

    return model, step


@cut("unused_input")
def positions_of_a_batch_that_require_grad_after_a_method_has_used_them() -> Built:
    class Graph:
        def __init__(self, at: torch.Tensor) -> None:
            self.at = at

        def prepare(self) -> None:
            self.apart = (self.at[1:] - self.at[:1]).square()

        def track(self) -> None:
            self.at.requires_grad = True  # CUT

    model, places = small(), batch()

    def step() -> torch.Tensor:
        graph = Graph(places.clone())
        graph.prepare()
        graph.track()
        energy = model(graph.apart).sum()
        return torch.autograd.grad(energy, graph.at, create_graph=True)[0].square().mean()

    return model, step


@cut("unused_input")
def a_penalty_at_points_between_that_were_not_told_to_require_grad() -> Built:
    model, real, fake = pair(), batch(), batch()

    def penalty(critic: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        part = torch.rand(6, 1)
        between = part * real + (1 - part) * fake  # CUT
        score = critic(between)
        slope = torch.autograd.grad(outputs=score.sum(), inputs=between, create_graph=True)[0]
        return (slope.norm(dim=1) - 1).square().mean()

    return model, lambda: penalty(lambda x: model["outer"](model["inner"](x).tanh()))


@cut("unused_input")
def a_slope_that_a_helper_takes_by_what_its_caller_made() -> Built:
    model = pair()

    def slope(value: torch.Tensor, *, by: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value.sum(), by, create_graph=True)[0]

    def residual(time: torch.Tensor) -> torch.Tensor:
        value = model["outer"](model["inner"](time).tanh())
        return slope(value, by=time) + value

    def step() -> torch.Tensor:
        points = torch.linspace(0, 1, 24).reshape(6, 4)  # CUT
        return residual(points).square().mean()

    return model, step


@cut("unused_input")
def forces_by_places_that_lost_their_flag_when_they_were_centred() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        places = x.clone().requires_grad_()
        places = places.detach() - x.mean(0)  # CUT
        energy = model["outer"](model["inner"](places).tanh()).sum()
        (slope,) = torch.autograd.grad(energy, [places], create_graph=True)
        return slope.square().mean()

    return model, step


@cut("unused_input")
def an_image_of_which_the_flag_is_switched_off_before_a_frozen_net_sees_it() -> Built:
    model, frozen = small(), small().requires_grad_(False)

    def step() -> torch.Tensor:
        image = batch()
        image.requires_grad = False  # CUT
        (slope,) = torch.autograd.grad(frozen(image).sum(), image)
        return model(image + slope.sign()).sum()

    return model, step


@cut("unused_input")
def a_flag_that_is_set_when_the_net_has_run() -> Built:
    model = pair()

    def step() -> torch.Tensor:
        x = batch()
        value = model["outer"](model["inner"](x).tanh())
        x.requires_grad_()  # CUT
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return (slope + x).square().mean()

    return model, step


@cut("unused_input")
def a_gradient_by_all_parameters_of_a_net_with_a_frozen_layer() -> Built:
    model, x = small(), batch()
    model[0].requires_grad_(False)

    def step() -> torch.Tensor:
        loss = model(x).sum()
        slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)  # CUT
        return loss + sum(one.square().sum() for one in slopes)

    return model, step
