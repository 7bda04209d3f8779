"""Nothing is fetched: the Hugging Face libraries are kept from the network while gradkit loads anything by itself."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

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
