"""The small widgets that the panel is made of. Each can say its words in another language: ``speak``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import ipywidgets
import traitlets

from gradkit.i18n import words
from gradkit.printable import entities as escape


@runtime_checkable
class Spoken(Protocol):
    """Whatever shows words."""

    def speak(self, language: str) -> None:
        """Show every word in ``language`` (``"en"`` or ``"zh"``); nothing else changes."""


def show(widget: Any, visible: bool) -> None:
    """Let a widget appear or disappear; it keeps all that was entered."""
    widget.layout.display = None if visible else "none"


def shown(widget: Any) -> bool:
    """Whether a widget is there to be seen, as far as its own layout goes."""
    return bool(widget.layout.display != "none")


class _Box:
    """Boxes speak by letting what is in them speak."""

    children: tuple[Any, ...]

    def speak(self, language: str) -> None:
        """See :class:`Spoken`."""
        for child in self.children:
            if isinstance(child, Spoken):
                child.speak(language)


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


class Say(ipywidgets.HTML):  # type: ignore[misc]
    """One sentence of the catalogue; not there at all while it has none.

    Args:
        key: its key, or ``""`` for nothing yet.
        look: CSS class of the element.
        tag: HTML tag of the element.
        facts: for the braces of the sentence.

    Example:
        >>> note = Say("panel.findings.more", n=4)
        >>> note.speak("en"); note.value
        '<div class="">Show all 4</div>'
    """

    def __init__(self, key: str = "", *, look: str = "", tag: str = "div", **facts: object) -> None:
        super().__init__()
        self._language, self._look, self._tag = "en", look, tag
        self.tell(key, **facts)

    def tell(self, key: str, **facts: object) -> None:
        """Say something else from now on."""
        self._said = key, facts
        self.speak(self._language)

    def speak(self, language: str) -> None:
        """See :class:`Spoken`."""
        self._language = language
        key, facts = self._said
        text = escape(words(key, language, **facts)) if key else ""
        self.value = f'<{self._tag} class="{self._look}">{text}</{self._tag}>' if key else ""
        show(self, bool(key))


class Press(ipywidgets.Button):  # type: ignore[misc]
    """A button. ``act`` is called without arguments."""

    def __init__(self, key: str, act: Callable[[], None], *, look: str = "", **facts: object) -> None:
        super().__init__()
        self.key, self.facts = key, facts
        self.on_click(lambda _: act())
        for name in look.split():
            self.add_class(name)

    def speak(self, language: str) -> None:
        """See :class:`Spoken`."""
        self.description = words(self.key, language, **self.facts)


class Segments(ipywidgets.HBox):  # type: ignore[misc]
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
        self.buttons = {value: Press(prefix + value, functools.partial(self._choose, value)) for value in values}
        super().__init__(tuple(self.buttons.values()), value=values[0])
        for name in ("gkp-seg", *look.split()):
            self.add_class(name)

    def speak(self, language: str) -> None:
        """See :class:`Spoken`."""
        for button in self.buttons.values():
            button.speak(language)

    def _choose(self, value: str) -> None:
        self.value = value

    @traitlets.observe("value")
    def _mark(self, _change: object = None) -> None:
        for value, button in self.buttons.items():
            (button.add_class if value == self.value else button.remove_class)("gkp-on")
