"""Numbers and arrays that remember where they came from compute, print and save like plain ones."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from gradkit.tracing import tagged_values

NUMBERS = (1.5, np.float32(1.5), np.float64(1.5))
BINARY = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow)
UNARY = (operator.neg, operator.pos, abs, round)

each_number = pytest.mark.parametrize("plain", NUMBERS, ids=lambda value: type(value).__name__)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    with tagged_values.kept():
        yield


def array(*values: float) -> Any:
    return tagged_values.follow(np.array(values, dtype=np.float32), (3,))


@each_number
def test_a_followed_number_equals_the_plain_one_and_is_of_its_kind(plain: Any) -> None:
    followed = tagged_values.follow(plain, (7,))
    assert tagged_values.origins(followed) == (7,)
    assert followed == plain
    assert hash(followed) == hash(plain)
    assert isinstance(followed, type(plain))
    assert (str(followed), repr(followed), f"{followed:.3f}") == (str(plain), repr(plain), f"{plain:.3f}")


@each_number
@pytest.mark.parametrize("operation", BINARY, ids=lambda o: o.__name__)
def test_arithmetic_gives_the_plain_result_and_merges_origins(plain: Any, operation: Callable[..., Any]) -> None:
    left, right = tagged_values.follow(plain, (7,)), tagged_values.follow(plain * 2, (8,))
    assert operation(left, right) == operation(plain, plain * 2)
    assert tagged_values.origins(operation(left, right)) == (7, 8)
    assert operation(2, left) == operation(2, plain)
    assert tagged_values.origins(operation(2, left)) == tagged_values.origins(operation(left, 2)) == (7,)


@each_number
@pytest.mark.parametrize("operation", UNARY, ids=lambda o: o.__name__)
def test_unary_operations_give_the_plain_result(plain: Any, operation: Callable[..., Any]) -> None:
    assert operation(tagged_values.follow(plain, (7,))) == operation(plain)


def test_a_sum_over_a_list_keeps_all_origins() -> None:
    numbers = [tagged_values.follow(0.5, (i,)) for i in range(3)]
    assert tagged_values.origins(sum(numbers)) == (0, 1, 2)
    assert tagged_values.origins(sum(numbers) / len(numbers)) == (0, 1, 2)
    assert tagged_values.origins(max(numbers)) == (0,)


def test_a_long_running_sum_does_not_grow_without_bound() -> None:
    total = 0.0
    for i in range(5000):
        total = total + tagged_values.follow(0.5, (i,))
    assert total == 2500
    assert 4999 in tagged_values.origins(total)
    assert len(tagged_values.origins(total)) < 500


def test_comparisons_are_plain_booleans() -> None:
    assert (tagged_values.follow(1.5, (7,)) > 1) is True
    assert type(array(1, 2).any()) is not tagged_values.Array


@each_number
def test_copied_numbers_are_plain_again(plain: Any) -> None:
    followed = tagged_values.follow(plain, (7,))
    assert type(copy.copy(followed)) is type(plain)
    assert type(copy.deepcopy([followed])[0]) is type(plain)


@each_number
def test_pickled_numbers_are_plain_again(plain: Any) -> None:
    followed = tagged_values.follow(plain, (7,))
    assert type(pickle.loads(pickle.dumps(followed))) is type(plain)
    assert b"gradkit" not in pickle.dumps({"value": followed, "many": [followed]})


def test_a_pickled_array_is_a_plain_array() -> None:
    again = pickle.loads(pickle.dumps(array(1, 2)))
    assert type(again) is np.ndarray
    assert again.tolist() == [1, 2]


def test_numbers_go_through_json_and_the_math_module() -> None:
    followed = tagged_values.follow(1.5, (7,))
    assert json.dumps({"loss": followed}) == '{"loss": 1.5}'
    assert math.sqrt(followed) == math.sqrt(1.5)
    assert int(followed) == 1
    assert math.isfinite(followed)


def test_integers_booleans_and_strings_are_left_as_they_are() -> None:
    for value in (3, True, "loss", None, np.int64(3), np.array([1, 2])):
        assert tagged_values.follow(value, (7,)) is value


def test_without_a_source_nothing_is_wrapped() -> None:
    assert type(tagged_values.follow(1.5, ())) is float


def test_nested_lists_are_followed_number_by_number() -> None:
    followed = tagged_values.follow([[1.5, 2.5], [3.5]], (7,))
    assert followed == [[1.5, 2.5], [3.5]]
    assert {tagged_values.origins(value) for row in followed for value in row} == {(7,)}


ARRAY_FUNCTIONS: tuple[Callable[[Any], Any], ...] = (
    lambda a: a + 1,
    lambda a: 2 - a,
    lambda a: np.exp(a),
    lambda a: a[1:],
    lambda a: a[a > 1],
    lambda a: a.reshape(2, 2).T,
    lambda a: a.astype(np.float64),
    lambda a: a.copy(),
    lambda a: a.sum(),
    lambda a: a.mean(),
    lambda a: a[0],
    lambda a: a.item(0),
    lambda a: a.tolist()[0],
    lambda a: np.maximum(a, 0),
    lambda a: np.concatenate([a, np.zeros(2)]),
    lambda a: np.stack([a, a]),
    lambda a: np.where(a > 1, a, 0),
    lambda a: np.cumsum(a),
    lambda a: np.linalg.norm(a),
    lambda a: np.clip(a, 0, 1),
    lambda a: a @ np.ones(4, dtype=np.float32),
    lambda a: np.einsum("i,j->ij", a, a),
    lambda a: np.split(a, 2)[0],
    lambda a: np.add.reduce(a),
)


@pytest.mark.parametrize("function", ARRAY_FUNCTIONS, ids=range(len(ARRAY_FUNCTIONS)))
def test_what_is_computed_from_an_array_has_its_origins_and_the_plain_value(function: Callable[[Any], Any]) -> None:
    followed = function(array(0.5, 1.5, 2.5, 3.5))
    plain = function(np.array([0.5, 1.5, 2.5, 3.5], dtype=np.float32))
    assert tagged_values.origins(followed) == (3,)
    assert np.array_equal(np.asarray(followed), np.asarray(plain))
    assert np.asarray(followed).dtype == np.asarray(plain).dtype


def test_an_array_written_in_place_takes_the_origins_of_what_is_written() -> None:
    target = array(0, 0)
    target[0] = tagged_values.follow(1.5, (9,))
    assert tagged_values.origins(target) == (3, 9)
    target += tagged_values.follow(np.float32(1), (11,))
    assert tagged_values.origins(target) == (3, 9, 11)
    assert target.tolist() == [2.5, 1]


def test_memory_that_an_array_holds_is_known_by_its_address() -> None:
    followed = array(0.5, 1.5, 2.5)
    assert tagged_values.origins_of_memory(torch.from_numpy(followed[1:]).data_ptr()) == (3,)
    assert tagged_values.origins_of_memory(torch.ones(3).data_ptr()) == ()


def test_numbers_that_left_torch_are_known_by_value_unless_they_are_plain() -> None:
    tagged_values.note([0.123456, 0.25, 6.0], (5,))
    assert tagged_values.origins_of_values([1.0, 0.123456]) == (5,)
    assert tagged_values.origins_of_values([0.25, 6.0]) == ()
    assert tagged_values.origins_of_values("text") == ()


def test_when_the_run_is_over_no_value_is_known_any_more() -> None:
    with tagged_values.kept():
        tagged_values.note(0.123456, (5,))
        assert tagged_values.any_left()
    assert tagged_values.origins_of_values(0.123456) == ()


def test_a_big_array_is_noted_without_a_copy_of_all_of_it() -> None:
    big = np.lib.stride_tricks.as_strided(np.ones(1), shape=(10**10,), strides=(0,))
    tagged_values.note(big, (5,))
    assert tagged_values.origins_of_values(big) == ()
