"""Every sentence that a user reads, by key, in English and Chinese.

The catalogues are the files ``locales/en/*.toml`` and ``locales/zh/*.toml``, one a subject. A key may have two forms,
``key.one`` and ``key.many``, and ``key.none`` where it is needed: the fact ``n`` chooses between them.

A public function that is asked for a language enters :func:`speaking`; whatever it calls says ``words(key)``, and knows
no language. A process has one more, that of :func:`language`, which is spoken wherever no other was asked for.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from importlib import resources
from typing import TypeVar

from gradkit.core import printable, regular_files, settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
LANGUAGES = ("en", "zh")
VARIABLE = "GRADKIT_LANGUAGE"
MARKER = ".gradkit-language"
"""A file that says in which language the notebooks of its folder are written."""

_current = ""
_spoken: ContextVar[str] = ContextVar("spoken", default="")


def language(code: str | None = None) -> str:
    """The language in use; with ``code``, switch to it first.

    Before the first switch it is :func:`default`.

    Args:
        code: ``"en"``, ``"zh"`` (also ``"zh_CN"``, ``"zh-Hans"``, ``"en_US"`` ...), or None to ask only.

    Raises:
        ValueError: a language that gradkit does not speak.

    Example:
        >>> language("zh_CN"), language("en")
        ('zh', 'en')
    """
    global _current
    if code is not None:
        _current = _known(code)
        return _current
    if spoken := _spoken.get():
        return spoken
    if not _current:
        _current = default()
    return _current


@contextlib.contextmanager
def speaking(code: str | None = None) -> Iterator[None]:
    """Within the block, all words are in one language; None for the one in use. Blocks may be nested.

    It holds for this thread alone, also if :func:`language` is called meanwhile. Whatever runs later (a generator's
    rest, a callback) speaks as of then; so never enter it around a ``yield``.

    Args:
        code: as for :func:`language`.

    Raises:
        ValueError: as for :func:`language`.

    Example:
        >>> with speaking("zh"): words("report.help")
        '修复建议'
    """
    if not code:
        yield
        return
    before = _spoken.set(_known(code))
    try:
        yield
    finally:
        _spoken.reset(before)


def in_each(say: Callable[[], T]) -> dict[str, T]:
    """What something says in every language, by language.

    Example:
        >>> in_each(lambda: words("report.note"))
        {'en': 'note', 'zh': '说明'}
    """
    found = {}
    for code in LANGUAGES:
        with speaking(code):
            found[code] = say()
    return found


def default() -> str:
    """The language before anyone has chosen one in this process.

    The one that ``$GRADKIT_LANGUAGE`` names, else that of the folder's notebooks, else the one last chosen on the
    panel, else the system's if gradkit speaks it, else English.
    """
    wished = (os.environ.get(VARIABLE, ""), _FOLDER_SPEAKS, settings.remembered("language"), locale(os.environ))
    return next((one for one in map(_short, wished) if one in LANGUAGES), "en")


def locale(environment: Mapping[str, str]) -> str:
    """The language of a terminal, as its environment names it; ``""`` if it does not.

    Example:
        >>> locale({"LANG": "zh_CN.UTF-8"})
        'zh_CN.UTF-8'
    """
    return next((environment[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environment.get(name)), "")


def _marked() -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return regular_files.read_regular(MARKER, most=1000).decode("utf-8").strip()
    return ""


_FOLDER_SPEAKS = _marked()  # now: the program may go to another folder later


def choose(code: str) -> str:
    """Switch to a language for good: the next kernel begins with it, unless ``$GRADKIT_LANGUAGE`` says otherwise.

    Raises:
        ValueError: as for :func:`language`.
    """
    chosen = language(code)
    settings.remember("language", chosen)
    return chosen


def _known(code: str) -> str:
    short = _short(code)
    if short not in LANGUAGES:
        raise ValueError(words("error.unknown_language", code=code))
    return short


def _short(code: str) -> str:
    return code.replace("_", "-").replace(".", "-").split("-")[0].lower()


@functools.cache
def catalogue(code: str) -> dict[str, str]:
    """All sentences of one language, flat: ``{"report.error": "..."}``."""
    merged: dict[str, str] = {}
    for entry in resources.files("gradkit").joinpath(f"locales/{code}").iterdir():
        if entry.name.endswith(".toml"):
            merged.update(_flat(tomllib.loads(entry.read_text(encoding="utf-8")), ""))
    return merged


def _flat(table: dict[str, object], prefix: str) -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = str(value)
    return flat


def has(key: str) -> bool:
    """Whether there is a sentence under ``key``."""
    table = catalogue("en")
    return key in table or f"{key}.many" in table


def words(key: str, lang: str | None = None, /, **facts: object) -> str:
    """The sentence under ``key``, with its ``{facts}`` filled in.

    Args:
        key: dotted key of the catalogue.
        lang: language code, for what speaks two languages side by side; None for the one in use.
        **facts: values for the braces. An ``n`` of 1 picks ``key.one``, any other ``key.many``; 0 picks ``key.none``
            where there is such a sentence. Characters that act on a terminal are shown escaped.

    Raises:
        KeyError: no such sentence.
        ValueError: as for :func:`language`.

    Example:
        >>> words("note.dropped", "en", call="item").split(",")[0]
        'what was computed from it was last used here (item)'
    """
    table = catalogue(_known(lang) if lang else language())
    if key not in table and "n" in facts:
        count = "none" if facts["n"] == 0 else "one" if facts["n"] == 1 else "many"
        key = f"{key}.{count}" if f"{key}.{count}" in table else f"{key}.many"
    return table[key].format(**{name: _shown(value) for name, value in facts.items()})


def _shown(value: object) -> object:
    return printable.escaped(str(value)) if isinstance(value, (str, os.PathLike)) else value


def columns(text: str) -> int:
    """How many terminal columns a text takes: wide East Asian characters take two.

    Example:
        >>> columns("ab中")
        4
    """
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1 for char in text
    )
