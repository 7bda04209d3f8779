"""The beliefs as a poll for a lecture room: one HTML page that needs no server, no network and no notebook.

People answer with one, two or three fingers, and somebody types the counts; or they hand in the files that
:mod:`gradkit.teaching.results` writes, and the page counts what was guessed in them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

from gradkit.core import package, writing
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.core.printable import entities as escape
from gradkit.report import html
from gradkit.report.markup import markdown, phrase
from gradkit.teaching import claim as teaching_claim

GUESSES = ("true", "false", "depends")
LESSON = (
    "eval_cuts_the_graph",
    "no_grad_round_a_frozen_encoder",
    "cat_with_a_frozen_pad",
    "loss_requires_grad_is_a_fix",
    "a_grad_fn_means_a_gradient",
    "retain_graph_is_a_fix",
    "constant_zero_loss",
    "no_gradient_is_zero_gradient",
)
"""The beliefs of the lesson of ninety minutes, in its order."""

LABELS = (
    "title", "how", "number", "before", "after", "reveal", "hide", "more", "less", "files", "counted", "save", "keys",
    "none",
)  # fmt: skip

BLANKS = {name: f"{{{name}}}" for name in ("at", "all", "name", "files", "votes")}
"""What the script fills in: left open in the sentences."""


def page(names: Sequence[str] = (), language: str | None = None) -> str:
    """The poll as one HTML document.

    Args:
        names: ids of beliefs, in the order in which they are asked; none for those of the lesson.
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Raises:
        GradkitError: ``no_such_claim``, ``unknown_language``.

    Example:
        >>> "default-src 'none'" in page(["clone_detaches"], "en")
        True
    """
    with speaking(language):
        style, script = _static("poll.css"), _static("poll.js")
        return (
            f"{html.opening(escape(words('poll.title')), [style], [script])}"
            f'<body><div id="poll"></div><script type="application/json" id="data">{_data(names or LESSON)}</script>\n'
            f'<script type="module">{script}</script></body></html>\n'
        )


@functools.cache
def _static(name: str) -> str:
    return (package.FOLDER / "teaching" / "static" / name).read_text(encoding="utf-8").strip()


def _data(names: Sequence[str]) -> str:
    """What the script reads, as JSON in which nothing ends a script element."""
    data = {
        "labels": {name: words(f"poll.{name}", **BLANKS) for name in LABELS},
        "guesses": [{"id": name, "label": words(f"quiz.guess.{name}")} for name in GUESSES],
        "beliefs": [_belief(name) for name in names],
    }
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c").replace("&", "\\u0026")


def _belief(name: str) -> dict[str, str]:
    one = teaching_claim.claim(name)
    told = markdown(f"{one.answer}\n\n{one.why}")
    return {"id": name, "belief": phrase(one.belief), "verdict": one.verdict, "told": told}


def write_poll(path: Path, names: Sequence[str] = (), language: str | None = None) -> None:
    """Write the page to a file.

    Raises:
        GradkitError: as :func:`page` does; ``notebook_not_writable``.
    """
    text = page(names, language)
    try:
        writing.write(path, text.encode())
    except OSError as reason:
        raise GradkitError("notebook_not_writable", path=path, reason=reason.strerror) from reason
