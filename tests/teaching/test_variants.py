"""The cures of guides where a library runs the loop: each a small program, run with the real library, wrong and right.

The libraries are no dependencies of gradkit: ``pip install 'gradkit[libraries]'``. Tests without one say so.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gradkit.core import causes, i18n
from gradkit.teaching.guide import LIBRARIES, guide, variants

MODULES = {"trainer": "accelerate", "lightning": "lightning", "accelerate": "accelerate", "ddp": "torch"}
HAVE = {cause: tuple(variants(cause)) for cause in causes.causes() if variants(cause)}
each_variant = pytest.mark.parametrize(("cause", "library"), [(cause, name) for cause in HAVE for name in HAVE[cause]])


@pytest.fixture(autouse=True)
def _quiet_and_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def program(cause: str, library: str, kind: str) -> Callable[[], Any]:
    pytest.importorskip(
        MODULES[library], reason=f"{MODULES[library]} is not installed: pip install 'gradkit[libraries]'"
    )
    return getattr(importlib.import_module(f"gradkit.teaching.guides.{cause}.variants"), f"{kind}_{library}")


@each_variant
def test_the_cure_works_with_the_real_library(cause: str, library: str) -> None:
    assert program(cause, library, "right")() is True


@each_variant
def test_without_it_the_fault_is_the_one_of_the_guide(cause: str, library: str) -> None:
    assert program(cause, library, "wrong")() is False


@each_variant
@pytest.mark.parametrize("language", i18n.LANGUAGES)
def test_the_guide_shows_the_code_that_was_run(cause: str, library: str, language: str) -> None:
    fix = guide(cause, language).steps[3].markdown
    assert i18n.words(f"guide.variant.{cause}.{library}", language) in fix
    assert f"```python\n{variants(cause)[library]}\n```" in fix


@pytest.mark.parametrize("language", i18n.LANGUAGES)
@pytest.mark.parametrize("cause", causes.causes())
def test_a_guide_says_whether_a_library_makes_a_difference(cause: str, language: str) -> None:
    fix = guide(cause, language).steps[3].markdown
    told = {name: i18n.words(f"guide.variant.{name}", language) in fix for name in ("title", "same")}
    assert told == {"title": cause in HAVE, "same": cause not in HAVE}


def test_every_library_has_a_variant_somewhere() -> None:
    assert {name for names in HAVE.values() for name in names} == set(LIBRARIES)
