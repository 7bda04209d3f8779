"""A saved model or adapter without the network: its ``config.json`` is read as data, and nothing is fetched.

A config that asks for more than weights is refused. The Hugging Face libraries are kept from the network while gradkit
loads anything by itself.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from gradkit.core.errors import GradkitError
from gradkit.load import reading

_MOST = {  # ten to a hundred times what the largest models have
    re.compile(r"\w*(layers?|blocks|depths?)"): 1_000,
    re.compile(r"\w*(experts|labels)"): 1_000_000,
    re.compile(r"\w*(size|dim|channels|positions|embeddings)"): 100_000_000,
}
_MOST_COPIES = 1_000
_OWN_MEGATRON = (None, "megatron.core")


def read_config(path: Path) -> dict[str, Any]:
    """A config, as long as it is harmless.

    Raises:
        GradkitError: it cannot be read, is no JSON object, wants code to be run (``config_wants_code``) or has
            a size that no model has (``config_value``).
    """
    found = reading.as_json(path)
    if not isinstance(found, dict):
        raise GradkitError("config_no_object", path=reading.short(path))
    for key, value in _entries(found):
        if _wants_code(key, value):
            raise GradkitError("config_wants_code", path=reading.short(path), name=key, value=_short(value))
        if isinstance(value, (int, float)) and any(value > most for name, most in _MOST.items() if name.fullmatch(key)):
            raise GradkitError("config_value", path=reading.short(path), name=key, value=_short(value))
    return found


def check_shards(folder: Path) -> None:
    """Whether the weights that the index files of a folder name lie in that folder.

    Raises:
        GradkitError: an index cannot be read (``unreadable_file``), or names a file elsewhere (``config_elsewhere``).
    """
    for path in sorted(folder.glob("*.index.json")):
        found = reading.as_json(path)
        shards = found.get("weight_map") if isinstance(found, dict) else None
        if not isinstance(shards, dict):
            raise GradkitError("config_no_object", path=reading.short(path))
        for shard in shards.values():
            if not isinstance(shard, str) or _leaves_its_folder(shard):
                raise GradkitError("config_elsewhere", path=reading.short(path), name=_short(shard))


def check_sizes(config: Mapping[str, Any], path: Path, largest: int) -> None:
    """Whether an adapter is asked for that is larger than the weights that were saved for it.

    Args:
        config: of the adapter.
        path: where it lies.
        largest: the largest size of any dimension in the file of its weights.

    Raises:
        GradkitError: ``config_value``.

    Example:
        >>> check_sizes({"r": 8}, Path("adapter_config.json"), largest=64)
    """
    copies = config.get("layer_replication")
    if isinstance(copies, list) and len(copies) > _MOST_COPIES:
        raise GradkitError("config_value", path=reading.short(path), name="layer_replication", value=len(copies))
    if config.get("peft_type") == "LOKR":  # a large r stands for a whole matrix there
        return
    ranks = config.get("rank_pattern")
    sizes = {name: config.get(name) for name in ("r", "num_virtual_tokens", "adapter_len")}
    for name, value in {**sizes, **(ranks if isinstance(ranks, dict) else {})}.items():
        if isinstance(value, (int, float)) and value > largest:
            raise GradkitError("config_value", path=reading.short(path), name=_short(name), value=_short(value))


def _entries(config: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The entries of it and of all that is inside it."""
    inside: list[object] = [config]
    while inside:
        value = inside.pop()
        if isinstance(value, dict):
            yield from value.items()
            inside.extend(value.values())
        elif isinstance(value, list):
            inside.extend(value)


def _wants_code(key: str, value: object) -> bool:
    if key == "megatron_core":  # the name of a module to import
        return value not in _OWN_MEGATRON
    if key.strip("_").startswith("attn_implementation"):  # the name of one that transformers has, or of a repository
        return "/" in str(value)
    return key == "trust_remote_code" and bool(value)


def _leaves_its_folder(name: str) -> bool:
    kinds = (PurePosixPath(name), PureWindowsPath(name))
    return any(one.is_absolute() or one.drive or ".." in one.parts for one in kinds)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
_HUB = "huggingface_hub.constants"
# What the libraries made of the variables when they were imported.
_CONSTANTS = (
    (_HUB, "HF_HUB_OFFLINE"),
    (_HUB, "HF_HUB_DISABLE_TELEMETRY"),
    ("transformers.utils.hub", "_is_offline_mode"),  # before transformers 5
    ("datasets.config", "HF_HUB_OFFLINE"),
)
_LOCK = threading.RLock()


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Without the network and without telemetry; afterwards all is as it was, also in what was imported meanwhile.

    Another thread that wants the same waits: the setting belongs to the process.

    Example:
        >>> with offline(): os.environ["HF_HUB_OFFLINE"]
        '1'
    """
    with _LOCK:
        with contextlib.suppress(ImportError):
            importlib.import_module(_HUB)  # before the variables are set, so that it reads the person's own
        constants = _constants()
        environment = {name: os.environ.get(name) for name in VARIABLES}
        try:
            os.environ.update(dict.fromkeys(VARIABLES, "1"))
            _set(dict.fromkeys(constants, True))
            yield
        finally:
            fresh = dict.fromkeys(_constants(), constants.get((_HUB, "HF_HUB_OFFLINE"), False))
            _set({**fresh, **constants})
            for name, value in environment.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def _constants() -> dict[tuple[str, str], Any]:
    there = [(name, constant) for name, constant in _CONSTANTS if hasattr(sys.modules.get(name), constant)]
    return {(name, constant): getattr(sys.modules[name], constant) for name, constant in there}


def _set(values: dict[tuple[str, str], Any]) -> None:
    for (module, constant), value in values.items():
        setattr(sys.modules[module], constant, value)
