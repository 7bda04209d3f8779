"""Saved weights onto a model: a state dict, a peft adapter folder, a transformers folder. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradkit import datafiles
from gradkit.batches import shown
from gradkit.errors import GradkitError
from gradkit.failures import cause_of

_NESTED = ("state_dict", "model_state_dict", "model")


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a state dict into a model, every key of it and no other.

    Args:
        model: written to.
        path: ``.pt``, ``.pth``, ``.bin`` or ``.safetensors``; a checkpoint that keeps its state dict under
            ``state_dict``, ``model_state_dict`` or ``model`` will do.

    Raises:
        GradkitError: no state dict, missing or unexpected keys, other shapes, or a file that cannot be read safely.
    """
    state: Any = datafiles.read(path)
    if isinstance(state, Mapping):
        state = next((state[key] for key in _NESTED if isinstance(state.get(key), Mapping)), state)
    if not isinstance(state, Mapping) or not all(isinstance(one, torch.Tensor) for one in state.values()):
        raise GradkitError("no_state_dict", path=path, got=shown(state))
    own = model.state_dict(keep_vars=True)
    given = {id(own[key]) for key in state if key in own}  # tied weights are saved under one of their names only
    missing = [key for key, tensor in own.items() if key not in state and id(tensor) not in given]
    unexpected = [key for key in state if key not in own]
    if missing or unexpected:
        raise GradkitError("weights_keys", path=path, missing=_few(missing), unexpected=_few(unexpected))
    for key, tensor in state.items():
        if tensor.shape != own[key].shape:
            wants, got = list(own[key].shape), list(tensor.shape)
            raise GradkitError("weights_shape", path=path, name=key, expected=wants, got=got)
    model.load_state_dict(dict(state), strict=False)


def load_adapter(base: nn.Module | None, folder: Path, *, is_trainable: bool | None = None) -> nn.Module:
    """Put a saved peft adapter on a model, with the call that a person's own code would make.

    Args:
        base: the model under it; None for the local transformers folder that the adapter was saved with.
        folder: what ``save_pretrained`` wrote.
        is_trainable: None leaves it at peft's default, which loads the adapter frozen.

    Raises:
        GradkitError: no adapter there, no base model, or the two do not fit.
    """
    config = folder / "adapter_config.json"
    if not config.is_file():
        raise GradkitError("no_adapter", path=folder)
    if base is None:
        base = _named_base(config)
    if not list(folder.glob("*.safetensors")):
        for weights in folder.glob("adapter_model.*"):
            datafiles.read(weights)  # refuses what would run code
    from peft import PeftModel

    options: dict[str, Any] = {} if is_trainable is None else {"is_trainable": is_trainable}
    try:
        with quiet():
            loaded: nn.Module = PeftModel.from_pretrained(base, str(folder), **options)
    except Exception as error:
        raise GradkitError("adapter_failed", path=folder, error=cause_of(error), base=type(base).__name__) from error
    return loaded


def load_pretrained(folder: Path) -> nn.Module:
    """A model from a local folder that transformers wrote, as the class that its ``config.json`` names.

    Raises:
        GradkitError: no such folder, no model in it, or a class that transformers does not have.
    """
    config = folder / "config.json"
    if not config.is_file():
        raise GradkitError("no_pretrained", path=folder)
    import transformers

    names = _json(config).get("architectures") or ["-"]
    kind = getattr(transformers, str(names[0]), None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise GradkitError("no_architecture", path=folder, name=names[0])
    try:
        with quiet():
            model: nn.Module = kind.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        raise GradkitError("unreadable_file", path=folder, error=cause_of(error)) from error
    return model


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars of transformers, and what it has to say to the authors of peft."""
    if "transformers" not in sys.modules:
        yield
        return
    from transformers.utils import logging as chatter

    logging: Any = chatter  # it carries no types
    shown_before = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        if shown_before:
            logging.enable_progress_bar()


def _named_base(config: Path) -> nn.Module:
    name = _json(config).get("base_model_name_or_path")
    if not name or not (Path(name) / "config.json").is_file():
        raise GradkitError("no_base", path=config.parent, name=name or "-")
    return load_pretrained(Path(name))


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise GradkitError("unreadable_file", path=path, error=cause_of(error)) from error


def _few(names: list[str]) -> str:
    rest = len(names) - 5
    return ", ".join(names[:5]) + (f", … (+{rest})" if rest > 0 else "") if names else "-"
