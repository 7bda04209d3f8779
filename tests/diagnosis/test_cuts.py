"""Which calls cut: decided from records alone, without torch."""

from __future__ import annotations

from typing import Any

from gradkit.core.trace import BLOCK, CHECKPOINT, FUNCTION, SAMPLE, Call, Region, Trace, Value, spot
from gradkit.diagnosis.facts import cuts
from gradkit.diagnosis.facts.cuts import CAST, DATA, DETACH, ESCAPE, OPERATION, REGION, REWRAP, UNDECLARED, Verdict


class Recorder:
    """Writes a trace down, call by call, as a tracer would."""

    def __init__(self, **parameters: tuple[int, ...]) -> None:
        self.values: list[Value] = []
        self.calls: list[Call] = []
        self.regions: list[Region] = []
        self.parameters = {name: self._value(-1, shape, parameter=name) for name, shape in parameters.items()}

    def _value(self, maker: int, shape: tuple[int, ...] = (2,), **facts: Any) -> int:
        facts = {"floating": True, "requires_grad": True, **facts}
        self.values.append(Value(maker=maker, shape=shape, **facts))
        return len(self.values) - 1

    def given(self, shape: tuple[int, ...] = (2,), **facts: Any) -> int:
        """A value that exists before the step, a batch for example."""
        return self._value(-1, shape, **{"requires_grad": False, **facts})

    def region(self, kind: str, key: str, given: tuple[int, ...] = ()) -> int:
        self.regions.append(Region(kind, (key,), (), given=given))
        return len(self.regions) - 1

    def call(
        self, name: str, *inputs: int, shape: tuple[int, ...] = (2,), under: tuple[int, ...] = (), state: bool = False,
        **facts: Any,
    ) -> int:  # fmt: skip
        """A call, and the number of what it made; ``under``: the regions that hold."""
        index = len(self.calls)
        live = any(self.values[i].requires_grad for i in inputs) and not under
        output = self._value(index, shape, **{"requires_grad": live, **facts})
        self.calls.append(Call(index, name, inputs, (output,), not under, under, -1, (), index, writes_state=state))
        return output

    def find(self, loss: int, *starved: str) -> Verdict:
        trace = Trace(tuple(self.calls), tuple(self.values), tuple(self.regions), (), loss, self.parameters)
        return cuts.find(trace, starved or tuple(self.parameters))


def kinds(verdict: Verdict) -> list[tuple[str, tuple[str, ...]]]:
    return [(cut.kind, cut.parameters) for cut in verdict.cuts]


def test_a_detach_between_parameter_and_loss_is_a_cut() -> None:
    r = Recorder(w=(2,))
    hidden = r.call("mul", r.parameters["w"])
    loss = r.call("sum", r.call("detach", hidden, requires_grad=False))
    assert kinds(r.find(loss)) == [(DETACH, ("w",))]


def test_a_detach_that_the_loss_never_sees_is_none() -> None:
    r = Recorder(w=(2,), v=(2,))
    hidden = r.call("mul", r.parameters["w"])
    r.call("detach", hidden, requires_grad=False)
    cut = r.call("data", r.call("mul", r.parameters["v"]), requires_grad=False)
    loss = r.call("add", hidden, cut)
    assert kinds(r.find(loss, "v")) == [(DATA, ("v",))]


def test_cuts_one_behind_the_other_are_all_named_in_the_order_of_the_run() -> None:
    r = Recorder(w=(2,))
    value = r.call("detach", r.parameters["w"], requires_grad=False)
    value = r.call("relu", value)
    value = r.call("data", value, requires_grad=False)
    value = r.call("tensor", value, requires_grad=False)
    assert [kind for kind, _ in kinds(r.find(value))] == [DETACH, DATA, REWRAP]


def test_both_ways_are_named_where_both_are_cut_and_cost_the_same() -> None:
    r = Recorder(w=(2,))
    hidden = r.call("mul", r.parameters["w"])
    left, right = r.call("detach", hidden, requires_grad=False), r.call("data", hidden, requires_grad=False)
    assert {kind for kind, _ in kinds(r.find(r.call("add", left, right)))} == {DETACH, DATA}


def test_the_way_with_fewer_cuts_is_the_one_that_is_named() -> None:
    r = Recorder(w=(2,))
    hidden = r.call("mul", r.parameters["w"])
    short = r.call("detach", hidden, requires_grad=False)
    long = r.call("data", r.call("data", hidden, requires_grad=False), requires_grad=False)
    assert [kind for kind, _ in kinds(r.find(r.call("add", short, long)))] == [DETACH]


def test_a_region_is_one_cut_however_many_calls_ran_in_it() -> None:
    r = Recorder(w=(2,), v=(2,))
    block = r.region(BLOCK, "block")
    hidden = r.call("mul", r.parameters["w"], under=(block,))
    hidden = r.call("add", hidden, r.parameters["v"], under=(block,))
    verdict = r.find(r.call("sum", hidden))
    assert kinds(verdict) == [(REGION, ("w", "v"))]
    assert verdict.cuts[0].calls == (0, 1)


def test_two_regions_around_one_call_are_two_cuts() -> None:
    r = Recorder(w=(2,))
    outer, inner = r.region(BLOCK, "outer"), r.region(BLOCK, "inner")
    verdict = r.find(r.call("sum", r.call("mul", r.parameters["w"], under=(outer, inner))))
    assert [cut.region for cut in verdict.cuts] in ([outer, inner], [inner, outer])


def test_a_custom_function_whose_output_is_live_is_no_cut() -> None:
    r = Recorder(w=(2,))
    inside = r.region(FUNCTION, "Square", given=(r.parameters["w"],))
    made = r.call("mul", r.parameters["w"], under=(inside,), requires_grad=True)
    cut = r.call("detach", made, requires_grad=False)
    assert kinds(r.find(r.call("sum", cut))) == [(DETACH, ("w",))]


def test_a_parameter_that_a_custom_function_uses_unasked_is_cut_where_it_is_used() -> None:
    r = Recorder(w=(2,))
    inside = r.region(FUNCTION, "Square")
    made = r.call("mul", r.parameters["w"], under=(inside,), requires_grad=True)
    assert kinds(r.find(r.call("sum", made))) == [(UNDECLARED, ("w",))]


def test_a_reentrant_checkpoint_whose_output_is_dead_is_a_cut() -> None:
    r = Recorder(w=(2,))
    inside = r.region(CHECKPOINT, "checkpoint")
    verdict = r.find(r.call("sum", r.call("mul", r.parameters["w"], under=(inside,))))
    assert kinds(verdict) == [(REGION, ("w",))]


def test_a_number_that_comes_back_is_an_escape_where_it_left() -> None:
    r = Recorder(w=(2,))
    number = r.call("item", r.parameters["w"], shape=(), floating=False, python=True, requires_grad=False)
    loss = r.call("as_tensor", number, shape=(), requires_grad=False)
    assert kinds(r.find(loss)) == [(ESCAPE, ("w",))]


def test_where_a_number_comes_back_by_what_would_cut_a_tensor_too_both_lines_are_cuts() -> None:
    r = Recorder(w=(2,))
    number = r.call("item", r.parameters["w"], shape=(), floating=False, python=True, requires_grad=False)
    loss = r.call("tensor", number, shape=(), requires_grad=False)
    assert kinds(r.find(loss)) == [(ESCAPE, ("w",)), (REWRAP, ("w",))]


def test_a_cast_to_integers_and_an_operation_without_derivative_are_told_apart() -> None:
    r = Recorder(w=(2,), v=(2,))
    cast = r.call("long", r.parameters["w"], floating=False, requires_grad=False)
    chosen = r.call("argmax", r.parameters["v"], floating=False, requires_grad=False)
    loss = r.call("sum", r.call("add", r.call("float", cast), r.call("float", chosen)))
    assert set(kinds(r.find(loss))) == {(CAST, ("w",)), (OPERATION, ("v",))}


def test_a_live_input_and_a_dead_output_with_gradients_on_is_an_operation_that_cuts() -> None:
    r = Recorder(w=(2,))
    made = r.call("bernoulli", r.parameters["w"], requires_grad=False)
    assert kinds(r.find(r.call("sum", made))) == [(OPERATION, ("w",))]


def test_as_tensor_of_one_tensor_is_no_cut_and_of_a_list_of_tensors_is() -> None:
    r = Recorder(w=(2,))
    same = r.call("as_tensor", r.parameters["w"])
    listed = r.call("as_tensor", same, same, shape=(2, 2), requires_grad=False)
    assert kinds(r.find(r.call("sum", listed))) == [(REWRAP, ("w",))]


def test_the_way_that_people_mean_is_preferred_to_the_one_through_an_index() -> None:
    r = Recorder(w=(2,))
    hidden, table = r.call("mul", r.parameters["w"]), r.given()
    index = r.call("long", hidden, floating=False, requires_grad=False)
    looked_up = r.call("embedding", index, table)
    detached = r.call("detach", hidden, requires_grad=False)
    assert kinds(r.find(r.call("add", looked_up, detached))) == [(DETACH, ("w",))]


def test_a_memory_that_outlives_the_step_is_the_last_way_to_be_accused() -> None:
    r = Recorder(w=(2,))
    hidden, queue = r.call("mul", r.parameters["w"]), r.given(buffer="queue")
    stored = r.call("copy_", queue, r.call("detach", hidden, requires_grad=False), state=True, buffer="queue")
    direct = r.call("data", r.call("data", hidden, requires_grad=False), requires_grad=False)
    assert kinds(r.find(r.call("mm", stored, direct))) == [(DATA, ("w",))]


def test_sampling_is_a_region_of_its_own_price() -> None:
    r = Recorder(w=(2,))
    sampling = r.region(SAMPLE, "sample")
    verdict = r.find(r.call("sum", r.call("normal", r.parameters["w"], under=(sampling,))))
    assert kinds(verdict) == [(REGION, ("w",))]


def test_a_parameter_from_which_nothing_flows_is_unconnected() -> None:
    r = Recorder(w=(2,), idle=(2,))
    loss = r.call("sum", r.parameters["w"])
    r.call("mul", r.parameters["idle"])
    verdict = r.find(loss, "idle")
    assert (verdict.cuts, verdict.unconnected, verdict.unexplained) == ((), ("idle",), ())


def test_a_parameter_with_an_open_way_is_unexplained() -> None:
    r = Recorder(w=(2,))
    verdict = r.find(r.call("sum", r.parameters["w"]), "w")
    assert (verdict.cuts, verdict.unconnected, verdict.unexplained) == ((), (), ("w",))


def test_a_parameter_written_in_place_starts_from_its_newest_version() -> None:
    r = Recorder(w=(2,))
    newer = r.call("mul_", r.parameters["w"], parameter="w")
    loss = r.call("sum", r.call("detach", newer, requires_grad=False))
    assert kinds(r.find(loss)) == [(DETACH, ("w",))]


def test_without_a_loss_every_parameter_is_unconnected() -> None:
    r = Recorder(w=(2,))
    r.call("sum", r.parameters["w"])
    assert r.find(-1).unconnected == ("w",)


def test_a_chain_of_many_thousand_calls_is_no_matter_of_recursion() -> None:
    r = Recorder(w=(2,))
    value = r.call("detach", r.parameters["w"], requires_grad=False)
    for _ in range(20_000):
        value = r.call("add", value)
    assert kinds(r.find(value)) == [(DETACH, ("w",))]


def test_the_reaching_values_are_those_that_flow_into_the_loss() -> None:
    r = Recorder(w=(2,))
    hidden, aside = r.call("mul", r.parameters["w"]), r.call("relu", r.parameters["w"])
    loss = r.call("sum", hidden)
    reaching = r.find(loss).reaching
    assert {r.parameters["w"], hidden, loss} <= reaching
    assert aside not in reaching


def test_places_that_read_alike_in_two_files_are_two_places() -> None:
    one, other = (compile("x = 1", name, "exec") for name in ("one.py", "other.py"))
    assert one == other  # Python does not look at the file
    assert spot(((one, 0),)) != spot(((other, 0),))
    assert spot(((one, 0),)) == spot(((compile("x = 1", "one.py", "exec"), 0),))
