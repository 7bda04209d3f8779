"""The small widgets that the panel is made of: labels, buttons, inputs, errors. Each can change its language."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.core.printable import entities as escape


class Spoken:
    """Whatever shows words. What a click writes is written long after, so that it keeps its language itself.

    Attributes:
        language: ``"en"`` or ``"zh"``.
    """

    language = "en"

    def speak(self, language: str) -> None:
        """Show every word in ``language``; nothing else changes."""
        self.language = language
        self._write()

    def spoken(self, key: str, **facts: object) -> str:
        """The sentence under ``key``, in its language."""
        return words(key, self.language, **facts)

    def spoken_html(self, key: str, **facts: object) -> str:
        """The same, to stand in HTML."""
        return escape(self.spoken(key, **facts))

    def _write(self) -> None:
        """Write every word anew."""


def show(widget: Any, visible: bool) -> None:
    """Let a widget appear or disappear; it keeps all that was entered."""
    widget.layout.display = None if visible else "none"


def shown(widget: Any) -> bool:
    """Whether a widget is there to be seen, as far as its own layout goes."""
    return bool(widget.layout.display != "none")


class _Box(Spoken):
    """Boxes speak by letting what is in them speak."""

    children: tuple[Any, ...]

    def _write(self) -> None:
        for child in self.children:
            if isinstance(child, Spoken):
                child.speak(self.language)


class Column(_Box, ipywidgets.VBox):  # type: ignore[misc]
    """Widgets below each other."""

    def __init__(self, *children: Any, look: str = "") -> None:
        super().__init__(children)
        for name in look.split():
            self.add_class(name)


class Row(_Box, ipywidgets.HBox):  # type: ignore[misc]
    """Widgets beside each other."""

    def __init__(self, *children: Any, look: str = "") -> None:
        super().__init__(children)
        for name in ("gkp-row", *look.split()):
            self.add_class(name)


class Label(Spoken, ipywidgets.HTML):  # type: ignore[misc]
    """One sentence of the catalogue; not there at all while it has none.

    Args:
        key: its key, or ``""`` for nothing yet.
        look: CSS class of the element.
        tag: HTML tag of the element.
        facts: for the braces of the sentence.

    Example:
        >>> note = Label("panel.findings.more", n=4)
        >>> note.speak("en"); note.value
        '<div class="">Show all 4</div>'
    """

    def __init__(self, key: str = "", *, look: str = "", tag: str = "div", **facts: object) -> None:
        super().__init__()
        self._look, self._tag = look, tag
        self.tell(key, **facts)

    def tell(self, key: str, **facts: object) -> None:
        """Say something else from now on."""
        self._said = key, facts
        self._write()

    def _write(self) -> None:
        key, facts = self._said
        text = self.spoken_html(key, **facts) if key else ""
        self.value = f'<{self._tag} class="{self._look}">{text}</{self._tag}>' if key else ""
        show(self, bool(key))


class Button(Spoken, ipywidgets.Button):  # type: ignore[misc]
    """A button. ``act`` is called without arguments."""

    def __init__(self, key: str, act: Callable[[], None], *, look: str = "", **facts: object) -> None:
        super().__init__()
        self.key, self.facts = key, facts
        self.on_click(lambda _: act())
        for name in look.split():
            self.add_class(name)

    def tell(self, key: str, **facts: object) -> None:
        """Say something else from now on."""
        self.key, self.facts = key, facts
        self._write()

    def _write(self) -> None:
        self.description = self.spoken(self.key, **self.facts)


class Choice(Spoken, ipywidgets.HBox):  # type: ignore[misc]
    """One of several, side by side.

    Args:
        prefix: the words of a value stand under ``prefix + value``.
        values: what there is to choose from; the first is chosen.
        look: further CSS classes.

    Attributes:
        value: what is chosen; observe it as any trait.
    """

    value = traitlets.Unicode()

    def __init__(self, prefix: str, values: Sequence[str], *, look: str = "") -> None:
        self.buttons = {value: Button(prefix + value, functools.partial(self._choose, value)) for value in values}
        super().__init__(tuple(self.buttons.values()), value=values[0])
        for name in ("gkp-seg", *look.split()):
            self.add_class(name)

    def _write(self) -> None:
        for button in self.buttons.values():
            button.speak(self.language)

    def _choose(self, value: str) -> None:
        self.value = value

    @traitlets.observe("value")
    def _mark(self, _change: object = None) -> None:
        for value, button in self.buttons.items():
            (button.add_class if value == self.value else button.remove_class)("gkp-on")


class Doors(Choice):
    """One of several, each a card of its own: its name, and below it, under ``<prefix>about.<value>``, what it is."""

    def __init__(self, prefix: str, values: Sequence[str]) -> None:
        super().__init__(prefix, values, look="gkp-doors")
        self.abouts = [Label(f"{prefix}about.{value}", tag="p") for value in values]
        pairs = zip(self.buttons.values(), self.abouts, strict=True)
        self.children = tuple(Column(button, about, look="gkp-door") for button, about in pairs)

    def _write(self) -> None:
        super()._write()
        for about in self.abouts:
            about.speak(self.language)


LABEL_WIDTH = "165px"


class Entry(Column):
    """A line of text with its name before it, help below it, and proposals while typing.

    Args:
        name: its words are ``panel.field.<name>`` and ``panel.help.<name>``.
        example: shown while it is empty; code or a path, the same in every language.
    """

    def __init__(self, name: str, example: str = "") -> None:
        self.name = name
        self.control = ipywidgets.Combobox(placeholder=example, ensure_option=False)
        self.control.style.description_width = LABEL_WIDTH
        super().__init__(self.control, Label(f"panel.help.{name}", look="gkp-help"), look="gkp-entry")

    @property
    def text(self) -> str:
        """What was entered, without spaces around it."""
        return str(self.control.value).strip()

    def propose(self, options: Sequence[str]) -> None:
        """Offer these while typing."""
        self.control.options = tuple(options)

    def _write(self) -> None:
        super()._write()
        self.control.description = self.spoken(f"panel.field.{self.name}")


class Pick(Column):
    """One of some names, or none.

    Args:
        name: its words are ``panel.field.<name>`` and ``panel.help.<name>``.
        none: key of the words for choosing none.
        chosen: the name to begin with.
    """

    def __init__(self, name: str, none: str, chosen: str = "") -> None:
        self.name, self.none = name, none
        self._offered = [("", "")]
        self._preselected = False
        options = [("", ""), (chosen, chosen)] if chosen else [("", "")]
        self.control = ipywidgets.Dropdown(options=options, value=chosen)
        self.control.style.description_width = LABEL_WIDTH
        super().__init__(self.control, Label(f"panel.help.{name}", look="gkp-help"), look="gkp-entry")

    @property
    def text(self) -> str:
        """The chosen name, ``""`` for none."""
        return str(self.control.value or "")

    def offer(self, found: Sequence[str], values: Mapping[str, object], *, eager: bool = False) -> None:
        """Offer some names; what was chosen stays chosen if it is still there.

        Args:
            found: the names, likeliest first.
            values: what they stand for.
            eager: choose the first if none was chosen; once, so that a person can choose none.
        """
        self._offered = [(f"{name}  ·  {type(values[name]).__name__}", name) for name in found]
        eager = eager and bool(found) and (bool(self.text) or not self._preselected)
        kept = self.text if self.text in found else found[0] if eager else ""
        self._preselected = self._preselected or eager
        self._set(kept)

    def _write(self) -> None:
        super()._write()
        self.control.description = self.spoken(f"panel.field.{self.name}")
        self._set(self.text)

    def _set(self, chosen: str) -> None:
        options = [(self.spoken(self.none), ""), *self._offered]
        if options != list(self.control.options):
            self.control.options = options
        self.control.value = chosen if any(chosen == name for _, name in options) else ""


class Problem(Spoken, ipywidgets.HTML):  # type: ignore[misc]
    """Shows an error, in the language of the moment; not there at all while there is none.

    Example:
        >>> problem = Problem()
        >>> problem.tell(GradkitError("no_such_file", path="train.py"))
        >>> "No such file: train.py." in problem.value
        True
    """

    def __init__(self) -> None:
        super().__init__()
        self.tell(None)

    def tell(self, error: BaseException | None) -> None:
        """Show ``error``, or nothing."""
        self.error = error
        self._write()

    def _write(self) -> None:
        show(self, self.error is not None)
        self.value = f'<div class="gkp-problem" role="alert">{self._text()}</div>' if self.error is not None else ""

    def _text(self) -> str:
        if isinstance(self.error, GradkitError):
            return _laid_out(self.error.text(self.language).strip())
        assert self.error is not None
        last = "".join(traceback.format_exception_only(type(self.error), self.error)).strip()
        trace = "".join(traceback.format_exception(type(self.error), self.error, self.error.__traceback__))
        return (
            f"<p>{self.spoken_html('panel.unexpected')}</p>"
            f'<pre class="gkp-code" tabindex="0">{escape(last)}</pre>'
            f"<details><summary>{self.spoken_html('panel.traceback')}</summary>"
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


class Sheet(anywidget.AnyWidget):
    """Shows HTML; a click on a ``<button data-press="name">`` in it is told to Python.

    Attributes:
        html: what to show. A button that had the focus has it again when the HTML has changed.

    Args:
        act: called with the name of the button that was pressed.

    Example:
        >>> heard = []
        >>> sheet = Sheet(heard.append)
        >>> sheet.press("sort:name"); heard
        ['sort:name']
    """

    _esm = Path(__file__).parent / "static" / "sheet.js"

    html = traitlets.Unicode("").tag(sync=True)

    def __init__(self, act: Callable[[str], None]) -> None:
        super().__init__()
        self._act = act
        self.on_msg(self._heard)

    def press(self, name: str) -> None:
        """Press a button from Python."""
        self._act(name)

    def _heard(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict) and "press" in content:
            self.press(str(content["press"]))
