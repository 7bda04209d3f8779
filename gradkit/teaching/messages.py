"""Which guide an error message leads to: by the messages that the guides quote.

A guide quotes messages in its English text, as ``RuntimeError: ...`` in a code span, and names further ones at its head
(``messages: one | another``). What a person pastes holds other numbers, a traceback before it, or only a part of it. So
words are compared, in their order; what is no word, and names in quotation marks, are passed over.
"""

from __future__ import annotations

import functools
import re
from difflib import SequenceMatcher

from gradkit.core import causes
from gradkit.core.errors import GradkitError
from gradkit.teaching import bilingual
from gradkit.teaching.guide import guides_folder

_QUOTED = re.compile(r"`\w+(?:Error|Exception): ([^`]+)`")
_WORD = re.compile(r"[a-z_]+")
_NAMES = re.compile(r"'[^'\s]*'|\"[^\"\s]*\"|\b\w*\d\w*\b")
LEAST_WORDS = 3
"""A text of fewer words is no message."""
_RUN = 2
_ALIKE, _CLOSE = 0.7, 0.1


def guides_about(message: str) -> tuple[str, ...]:
    """The causes whose guides speak of an error message, those first that quote most of it.

    Args:
        message: the words of an exception, a part of them, or a traceback that ends in them; in any case and with any
            numbers.

    Raises:
        GradkitError: ``no_guide_for_message``.

    Example:
        >>> guides_about("RuntimeError: grad can be implicitly created only for scalar outputs")
        ('non_scalar',)
        >>> guides_about("Trying to backward through the graph a second time")
        ('double_backward', 'grad_on_non_leaf')
    """
    said = _words(message)
    alike = {cause: max((_likeness(said, one) for one in quoted(cause)), default=0.0) for cause in causes.causes()}
    least = max(_ALIKE, max(alike.values()) - _CLOSE)
    found = tuple(sorted((cause for cause, share in alike.items() if share >= least), key=lambda one: -alike[one]))
    if len(said) < LEAST_WORDS or not found:
        raise GradkitError("no_guide_for_message", message=message.strip())
    return found


@functools.cache
def quoted(cause: str) -> tuple[tuple[str, ...], ...]:
    """The messages that a guide quotes or names, each as its words.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> quoted("non_scalar")
        (('grad', 'can', 'be', 'implicitly', 'created', 'only', 'for', 'scalar', 'outputs'),)
    """
    head, body = bilingual.front_matter((guides_folder(cause) / "en.md").read_text(encoding="utf-8"))
    found = [*_QUOTED.findall(body), *head.get("messages", "").split("|")]
    return tuple(dict.fromkeys(said for one in found if len(said := _words(one)) >= LEAST_WORDS))


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(_NAMES.sub(" ", text).lower()))


def _likeness(said: tuple[str, ...], quote: tuple[str, ...]) -> float:
    """How much of the shorter one stands in the longer one, in runs of words."""
    blocks = SequenceMatcher(None, said, quote, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks if block.size >= _RUN) / max(1, min(len(said), len(quote)))
