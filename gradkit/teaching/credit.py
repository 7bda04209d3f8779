"""Credit for a change that is right although another fault still hides it.

Of two faults one behind the other, mending the hidden one changes nothing that a learner could measure. Whether it is
right is asked of a run in which every other fault is mended by the solution's own function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from gradkit.core.errors import GradkitError
from gradkit.teaching import exercises, grading
from gradkit.teaching.exercises import Exercise
from gradkit.teaching.grading import Answers


def credited(exercise: Exercise, answers: Answers) -> tuple[str, ...]:
    """Those of an exercise's changes that are right in this answer, whatever else is wrong with it.

    Args:
        exercise: which; one with fewer than two changes credits none.
        answers: the learner's functions, whose program they lie in.

    Returns:
        Names out of ``exercise.changes``. A program that has no such function any more is given no credit for it.

    Example:
        >>> right = exercises.solution("two_cuts")
        >>> credited(exercises.exercise("two_cuts"), {name: right[name] for name in ("build", "loss_of")})
        ('Reader.centre', 'Reader.rescale')
    """
    if len(exercise.changes) < 2:
        return ()
    return tuple(one for one in exercise.changes if _is_right(one, exercise, answers))


def _is_right(change: str, exercise: Exercise, answers: Answers) -> bool:
    others = [one for one in exercise.changes if one != change]
    if _owner(change, answers) is None:
        return False
    try:
        with grafted(others, exercise, answers) as mended:
            return grading.is_right(exercise, mended)
    except GradkitError:
        return False


@contextlib.contextmanager
def grafted(names: list[str], exercise: Exercise, answers: Answers) -> Iterator[Answers]:
    """The answers, their program having these functions from the solution while the block runs.

    Raises:
        GradkitError: ``other_answers``: the program has no function of such a name.
    """
    right, mended = exercises.solution(exercise.name), dict(answers)
    with contextlib.ExitStack() as stack:
        for name in names:
            owner = _owner(name, answers)
            if owner is None:
                raise GradkitError("other_answers", name=exercise.name, functions=name)
            last = name.rpartition(".")[2]
            stack.callback(_put, owner, last, _get(owner, last))
            new = _found(right, name)
            _put(owner, last, new)
            if name in mended:
                mended[name] = new
        yield mended


def _owner(name: str, answers: Answers) -> Any:
    """What holds the function of that name: the names of the learner's program, or a class of it; None for none."""
    holders = [vars_of for one in answers.values() if (vars_of := getattr(one, "__globals__", None)) is not None]
    first, _, last = name.partition(".")
    for names in holders:
        owner = names.get(first) if last else names
        if (isinstance(owner, type) and last in vars(owner)) or (not last and first in names):
            return owner
    return None


def _get(owner: Any, name: str) -> Any:
    return vars(owner)[name] if isinstance(owner, type) else owner[name]


def _put(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        owner[name] = value


def _found(names: Mapping[str, Any], name: str) -> Any:
    first, _, last = name.partition(".")
    return vars(names[first])[last] if last else names[first]
