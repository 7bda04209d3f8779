"""An error where it belongs: one clear text, or for what nobody foresaw one sentence and a folded traceback."""

from __future__ import annotations

import traceback

import ipywidgets

from gradkit.errors import GradkitError
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.widgets.parts import show


class Problem(ipywidgets.HTML):  # type: ignore[misc]
    """Shows an error, in the language of the moment; not there at all while there is none.

    Example:
        >>> problem = Problem()
        >>> problem.tell(GradkitError("no_such_file", path="train.py"))
        >>> "No such file: train.py." in problem.value
        True
    """

    def __init__(self) -> None:
        super().__init__()
        self._language = "en"
        self.tell(None)

    def tell(self, error: BaseException | None) -> None:
        """Show ``error``, or nothing."""
        self.error = error
        self.speak(self._language)

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self._language = language
        show(self, self.error is not None)
        self.value = f'<div class="gkp-problem" role="alert">{self._text()}</div>' if self.error is not None else ""

    def _text(self) -> str:
        if isinstance(self.error, GradkitError):
            return _laid_out(self.error.text(self._language).strip())
        assert self.error is not None
        last = "".join(traceback.format_exception_only(type(self.error), self.error)).strip()
        trace = "".join(traceback.format_exception(type(self.error), self.error, self.error.__traceback__))
        return (
            f"<p>{escape(words('panel.unexpected', self._language))}</p>"
            f'<pre class="gkp-code" tabindex="0">{escape(last)}</pre>'
            f"<details><summary>{escape(words('panel.traceback', self._language))}</summary>"
            f'<pre class="gkp-code" tabindex="0">{escape(trace)}</pre></details>'
        )


def _laid_out(text: str) -> str:
    """Paragraphs, and indented lines as code."""
    parts: list[str] = []
    code: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("  "):
            code.append(line[2:])
            continue
        if code:
            parts.append(f'<pre class="gkp-code" tabindex="0">{escape(chr(10).join(code))}</pre>')
            code = []
        if line.strip():
            parts.append(f"<p>{escape(line)}</p>")
    return "".join(parts)
