"""Every test, doctests too, starts alike: one thread, the same seed, grad mode on, English."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gradkit.core import attempts, i18n, settings
from gradkit.teaching import book


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many cuts are put into sound models; every night more than on every push."""
    parser.addoption("--injections", type=int, default=16, help="cuts that tests/injection puts into sound models")
    parser.addoption("--injection-seed", type=int, default=7, help="where and how they are cut")


def pytest_configure() -> None:
    """Many small models at once: more threads only get in each other's way."""
    torch.set_num_threads(1)
    attempts.LOUD = True  # a fault of gradkit's is not to be told to the person, but to fail the test


@pytest.fixture(autouse=True, scope="session")
def _settings_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever runs the tests keeps their own settings, and the tests do not depend on them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(settings.FOLDER, str(tmp_path_factory.mktemp("settings")))
        patch.delenv(i18n.VARIABLE, raising=False)
        patch.setenv("LC_ALL", "C.UTF-8")
        yield


@pytest.fixture(scope="session")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every notebook lies in both languages, written as ``gradkit notebooks`` writes them.

    The repository holds those of ``gradkit/teaching/books`` only; the guides' own are always built.
    """
    folder = tmp_path_factory.mktemp("notebooks")
    book.hand_out(folder, languages=i18n.LANGUAGES)
    return folder


@pytest.fixture(autouse=True)
def _the_same_start_for_every_test() -> Iterator[None]:
    settings.file().unlink(missing_ok=True)  # a language chosen on a panel is remembered
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    i18n.language("en")
    yield
    torch.set_grad_enabled(True)
    i18n.language("en")
