"""Saved weights onto a model: a state dict, a peft adapter folder, a transformers folder. Nothing is downloaded."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradkit.core import regular_files
from gradkit.core.errors import GradkitError
from gradkit.core.introspection import one_line
from gradkit.load import batches, pretrained, reading
from gradkit.load.failures import cause_of
from gradkit.load.pretrained import offline

_NESTED = ("state_dict", "model_state_dict", "model")
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")  # in the order that peft looks for them


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a state dict into a model, every key of it and no other.

    Args:
        model: written to.
        path: ``.pt``, ``.pth``, ``.bin`` or ``.safetensors``; a checkpoint that keeps its state dict under
            ``state_dict``, ``model_state_dict`` or ``model`` will do.

    Raises:
        GradkitError: no state dict, missing or unexpected keys, other shapes, or a file that cannot be read safely.
    """
    state: Any = batches.read_data_file(path)
    if isinstance(state, Mapping):
        state = next((state[key] for key in _NESTED if isinstance(state.get(key), Mapping)), state)
    if not isinstance(state, Mapping) or not all(isinstance(one, torch.Tensor) for one in state.values()):
        raise GradkitError("no_state_dict", path=path, got=one_line(state))
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
    with reading.told(path):
        model.load_state_dict(dict(state), strict=False)


def load_adapter(base: nn.Module | None, folder: Path, *, is_trainable: bool | None = None) -> nn.Module:
    """Put a saved peft adapter on a model, with the call that a person's own code would make.

    Args:
        base: the model under it; None for the local transformers folder that the adapter was saved with.
        folder: what ``save_pretrained`` wrote.
        is_trainable: None leaves it at peft's default, which loads the adapter frozen.

    Raises:
        GradkitError: no adapter there, one without its weights, no base model, or the two do not fit.
    """
    path = folder / "adapter_config.json"
    if regular_files.is_missing(path):
        raise GradkitError("no_adapter", near=reading.near(folder), path=reading.short(folder))
    config = pretrained.read_config(path)
    pretrained.check_sizes(config, path, _largest(_weights(folder)))
    if base is None:
        base = _named_base(config.get("base_model_name_or_path"), folder)
    from peft import PeftModel

    options: dict[str, Any] = {} if is_trainable is None else {"is_trainable": is_trainable}
    try:
        with quiet(), offline():
            loaded: nn.Module = PeftModel.from_pretrained(base, str(folder), **options)
    except Exception as error:
        raise GradkitError("adapter_failed", path=folder, error=cause_of(error), base=type(base).__name__) from error
    return loaded


def load_pretrained(folder: Path) -> nn.Module:
    """A model from a local folder that transformers wrote, as the class that its ``config.json`` names.

    Raises:
        GradkitError: no such folder, no model in it, or a class that transformers does not have.
    """
    path = folder / "config.json"
    if regular_files.is_missing(path):
        raise GradkitError("no_pretrained", near=reading.near(folder), path=reading.short(folder))
    names = pretrained.read_config(path).get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else "-"
    _check_files_of(folder)
    import transformers

    kind = getattr(transformers, name, None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise GradkitError("no_architecture", path=folder, name=name)
    try:
        with quiet(), offline():
            model: nn.Module = kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise GradkitError("pretrained_failed", path=folder, error=cause_of(error)) from error
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


def _weights(folder: Path) -> Mapping[Any, Any]:
    """The weights in an adapter's folder, which peft would ask the hub for if there were none.

    Raises:
        GradkitError: there are none (``no_adapter_weights``), or they cannot be read without running code.
    """
    path = next((folder / name for name in _WEIGHTS if os.path.lexists(folder / name)), None)
    if path is None:
        raise GradkitError("no_adapter_weights", path=reading.short(folder), files=" / ".join(_WEIGHTS))
    state = batches.read_data_file(path)
    if not isinstance(state, Mapping):
        raise GradkitError("no_state_dict", path=path, got=one_line(state))
    return state


def _largest(state: Mapping[Any, Any]) -> int:
    sizes = (size for tensor in state.values() if isinstance(tensor, torch.Tensor) for size in tensor.shape)
    return max(sizes, default=0)


def _named_base(name: object, folder: Path) -> nn.Module:
    if not isinstance(name, str) or not os.path.isfile(Path(name) / "config.json"):
        known = reading.short(name) if isinstance(name, str) and name else "-"
        raise GradkitError("no_base", path=reading.short(folder), name=known)
    return load_pretrained(Path(name))


def _check_files_of(folder: Path) -> None:
    """Whether all that transformers may open in a folder can be opened, and leads nowhere else."""
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".bin") and not path.is_dir():
            reading.check(path)
    for name in ("adapter_config.json", "generation_config.json"):
        if os.path.lexists(folder / name):
            pretrained.read_config(folder / name)
    pretrained.check_shards(folder)


def _few(names: list[Any]) -> str:
    rest = len(names) - 5
    return ", ".join(map(str, names[:5])) + (f", … (+{rest})" if rest > 0 else "") if names else "-"
