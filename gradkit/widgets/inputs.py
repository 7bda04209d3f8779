"""What a person fills in: a line of text with proposals, or one of some names. Each has its name and a line of help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ipywidgets

from gradkit.i18n import words
from gradkit.widgets.parts import Column, Say

LABEL_WIDTH = "150px"


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
        super().__init__(self.control, Say(f"panel.help.{name}", look="gkp-help"), look="gkp-entry")

    @property
    def text(self) -> str:
        """What was entered, without spaces around it."""
        return str(self.control.value).strip()

    def propose(self, options: Sequence[str]) -> None:
        """Offer these while typing."""
        self.control.options = tuple(options)

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        super().speak(language)
        self.control.description = words(f"panel.field.{self.name}", language)


class Pick(Column):
    """One of some names, or none.

    Args:
        name: its words are ``panel.field.<name>`` and ``panel.help.<name>``.
        none: key of the words for choosing none.
        chosen: the name to begin with.
    """

    def __init__(self, name: str, none: str, chosen: str = "") -> None:
        self.name, self.none = name, none
        self._language, self._offered = "en", [("", "")]
        options = [("", ""), (chosen, chosen)] if chosen else [("", "")]
        self.control = ipywidgets.Dropdown(options=options, value=chosen)
        self.control.style.description_width = LABEL_WIDTH
        super().__init__(self.control, Say(f"panel.help.{name}", look="gkp-help"), look="gkp-entry")

    @property
    def text(self) -> str:
        """The chosen name, ``""`` for none."""
        return str(self.control.value or "")

    def offer(self, found: Sequence[str], values: Mapping[str, object], *, eager: bool = False) -> None:
        """Offer some names; what was chosen stays chosen if it is still there.

        Args:
            found: the names, likeliest first.
            values: what they stand for.
            eager: choose the first if none was chosen.
        """
        self._offered = [(f"{name}  ·  {type(values[name]).__name__}", name) for name in found]
        kept = self.text if self.text in found else found[0] if eager and found else ""
        self._set(kept)

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        super().speak(language)
        self._language = language
        self.control.description = words(f"panel.field.{self.name}", language)
        self._set(self.text)

    def _set(self, chosen: str) -> None:
        options = [(words(self.none, self._language), ""), *self._offered]
        if options != list(self.control.options):
            self.control.options = options
        self.control.value = chosen if any(chosen == name for _, name in options) else ""
