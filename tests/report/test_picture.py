"""The picture of a run: where the plate of a cut stands, what the batch's tensors are called, what is left out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradkit
from gradkit.report.picture import build


class Frugal(nn.Module):
    """The first layers run without a graph."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.head = nn.Linear(4, 1)

    def forward(self, image):
        for number, layer in enumerate(self.layers):
            with torch.set_grad_enabled(number >= 2):
                image = layer(image).relu()
        return self.head(image)


def drawn(model, step):
    return gradkit.diagnose(step, model=model).picture


def ends(picture, number):
    """What feeds a node, and what it feeds."""
    label = {node.number: node.module or node.label for node in picture.nodes}
    feeds = {label[edge.source] for edge in picture.edges if edge.target == number}
    return feeds, {label[edge.target] for edge in picture.edges if edge.source == number}


@pytest.fixture(scope="module")
def frugal():
    model, images = Frugal(), torch.ones(2, 4)
    return drawn(model, lambda: model(images).sum())


def test_the_plate_of_a_stretch_without_a_graph_stands_where_its_result_is_used(frugal):
    cut = next(node for node in frugal.nodes if node.kind == "cut")
    assert ends(frugal, cut.number) == ({"relu"}, {"layers.2"})


def test_inside_a_stretch_without_a_graph_layers_follow_each_other_as_they_ran(frugal):
    links = {(edge.source, edge.target) for edge in frugal.edges if edge.status == "dead"}
    by_module = {node.module: node.number for node in frugal.nodes if node.kind == "call" and node.module}
    relu = next(n.number for n in frugal.nodes if n.label == "relu" and n.kind == "call")
    assert (by_module["layers.0"], relu) in links
    assert (relu, by_module["layers.1"]) in links


def test_a_loss_that_was_made_without_a_graph_hangs_on_the_plate():
    model, images = nn.Linear(4, 1), torch.ones(2, 4)

    def step():
        with torch.no_grad():
            return model(images).sum()

    picture = drawn(model, step)
    cut = next(node for node in picture.nodes if node.kind == "cut")
    assert ends(picture, cut.number) == ({"sum"}, {"loss"})


class Relay(nn.Module):
    """Two cuts, one behind the other, that the same line calls."""

    def __init__(self):
        super().__init__()
        self.eye, self.bridge, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, image):
        seen = self.eye(image).detach()
        told = self.bridge(seen)
        told = torch.tensor(told.detach().numpy())
        return self.head(told)


def test_each_of_two_cuts_one_behind_the_other_has_its_plate_at_its_own_place():
    model, images = Relay(), torch.ones(2, 4)
    picture = drawn(model, lambda: model(images).sum())
    plates = {node.label: ends(picture, node.number) for node in picture.nodes if node.kind == "cut"}
    assert plates == {"detach": ({"eye"}, {"bridge"}), "numpy_roundtrip": ({"bridge"}, {"head"})}


def test_the_batch_is_called_what_the_step_calls_it():
    model = nn.Linear(4, 2)
    batch, labels = {"pixel_values": torch.ones(3, 4)}, torch.zeros(3, dtype=torch.long)
    picture = drawn(model, lambda: nn.functional.cross_entropy(model(batch["pixel_values"]), labels))
    assert {(n.label, n.shape) for n in picture.nodes if n.kind == "input"} == {
        ("pixel_values", (3, 4)),
        ("labels", (3,)),
    }


def test_further_tensors_of_the_batch_are_counted():
    model, parts = nn.Linear(4, 1), [torch.ones(1, 4) for _ in range(11)]
    picture = drawn(model, lambda: sum(model(part) for part in parts).sum())
    assert sum(node.kind == "input" for node in picture.nodes) == build.MOST_INPUTS
    assert picture.more_inputs == 3


@pytest.fixture
def short(monkeypatch):
    """A picture of a long chain, where only a few nodes may be drawn one by one."""
    monkeypatch.setattr(build, "MOST_NODES", 20)
    first, last = nn.Linear(2, 2), nn.Linear(2, 1)
    model, x = nn.ModuleList([first, last]), torch.ones(1, 2)

    def step():
        state = first(x)
        for _ in range(40):
            state = state.tanh()
        return last(state).sum()

    return drawn(model, step)


def test_what_is_left_out_of_a_large_graph_is_counted(short):
    by_node = sum(node.kind == "autograd" and node.label[:1].isupper() for node in short.nodes)
    assert 0 < by_node <= 20
    assert short.left_out > 25


def test_a_gradient_flows_on_through_what_is_left_out(short):
    assert {node.status for node in short.nodes if node.kind in ("autograd", "parameter", "call")} == {"live"}
    assert {node.label for node in short.nodes if node.kind == "parameter"} == {
        "0.weight", "0.bias", "1.weight", "1.bias",
    }  # fmt: skip
    assert {edge.status for edge in short.edges if edge.target != 1} - {"dead"} == {"live"}


def test_a_node_has_the_shape_of_its_own_value_not_of_the_call_that_it_is_a_step_of():
    model, labels = nn.Linear(4, 3), torch.zeros(2, dtype=torch.long)
    picture = drawn(model, lambda: nn.functional.cross_entropy(model(torch.ones(2, 4)), labels))
    shapes = {node.label: node.shape for node in picture.nodes if node.kind == "autograd"}
    assert shapes == {
        "TBackward0": (4, 3), "AddmmBackward0": (2, 3), "LogSoftmaxBackward0": (2, 3), "NllLossBackward0": (),
    }  # fmt: skip


def test_nothing_is_left_out_of_a_graph_of_common_size(frugal):
    assert (frugal.left_out, frugal.more_inputs) == (0, 0)
