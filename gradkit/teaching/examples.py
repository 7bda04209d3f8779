"""The built-in examples: whole programs under the names that ``gradkit diagnose`` and the panel know them by."""

from __future__ import annotations

import importlib

import torch

from gradkit.core.errors import GradkitError
from gradkit.load import adapters
from gradkit.load.pretrained import offline
from gradkit.load.step import Step, from_step
from gradkit.witness.listening import listening

_EXAMPLES = {
    "resume_lora": ("resume_lora", "make"),
    "resume_lora_fixed": ("resume_lora", "make_fixed"),
    "vision_memory_never_called": ("vision_memory.programs", "make_never_called"),
    "vision_memory_detached": ("vision_memory.programs", "make_detached"),
    "vision_memory_fixed": ("vision_memory.programs", "make_fixed"),
    "multitask_epoch_6": ("multitask.programs", "make_epoch_6"),
    "multitask_keypoints_only": ("multitask.programs", "make_multitask"),
    "multitask_times_zero": ("multitask.programs", "make_times_zero"),
    "multitask_fixed": ("multitask.programs", "make_fixed"),
}
BUILTINS: tuple[str, ...] = tuple(_EXAMPLES)


def from_builtin(name: str) -> Step:
    """One of the examples that ship with gradkit, by its name in ``BUILTINS``.

    Raises:
        GradkitError: no such example.
    """
    if name not in _EXAMPLES:
        raise GradkitError("no_such_builtin", name=name, names=", ".join(BUILTINS))
    module, function = _EXAMPLES[name]
    program = importlib.import_module(f"gradkit.cases.{module}")
    with adapters.quiet(), offline(), torch.random.fork_rng(devices=[]), listening():
        model, step = getattr(program, function)()
    return from_step(step, model, label=name)
