"""Of methods of several classes, those that an object is there for."""

from __future__ import annotations

import gc
from pathlib import Path
from types import ModuleType

import pytest

from gradkit.core.records import Location
from gradkit.load.specs import load_file
from gradkit.source import instances
from gradkit.source.instances import IDLE, LIVING, UNKNOWN

PROGRAM = """
class Base:
    def freeze(self):
        return 1


class Whole(Base):
    def freeze(self):
        return 2


class Child(Base):
    pass


class Side(Base):
    def freeze(self):
        return 3


class Both(Side, Child):
    pass
"""


@pytest.fixture
def program(tmp_path: Path) -> ModuleType:
    path = tmp_path / "trainers.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return load_file(path)


def places(program: ModuleType, *names: str) -> list[Location]:
    return [Location(str(program.__file__), 3, function=f"{name}.freeze") for name in names]


def told(program: ModuleType, *names: str) -> list[str]:
    gc.collect()
    return list(instances.statuses(places(program, *names)).values())


def test_a_method_is_used_if_an_object_of_its_class_is_there(program: ModuleType) -> None:
    whole = program.Whole()
    assert told(program, "Base", "Whole", "Side") == [IDLE, LIVING, IDLE]
    assert whole.freeze() == 2


def test_a_method_is_used_by_objects_of_a_class_that_inherits_it(program: ModuleType) -> None:
    child = program.Child()
    assert told(program, "Base", "Whole") == [LIVING, IDLE]
    assert child.freeze() == 1


def test_of_two_classes_above_the_one_whose_method_comes_first_is_used(program: ModuleType) -> None:
    both = program.Both()
    assert told(program, "Base", "Side") == [IDLE, LIVING]
    assert both.freeze() == 3


def test_of_a_place_in_no_method_nothing_is_known(program: ModuleType) -> None:
    file = str(program.__file__)
    found = instances.statuses([Location(file, 1, function="<module>"), Location(file, 1, function="Nobody.freeze")])
    assert set(found.values()) == {UNKNOWN}


def test_places_of_classes_without_objects_go_where_another_has_one(program: ModuleType) -> None:
    whole = program.Whole()
    spots = [*places(program, "Base", "Whole"), Location(str(program.__file__), 1, function="build")]
    assert instances.of_living((one, one) for one in spots) == spots[1:]
    assert whole is not None


def test_all_places_stay_where_no_class_has_an_object(program: ModuleType) -> None:
    gc.collect()
    spots = places(program, "Base", "Whole")
    assert instances.of_living((one, one) for one in spots) == spots
