"""What was loaded: the model in numbers, and the entries of its batch."""

from __future__ import annotations

import ipywidgets

from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.widgets.parts import Column, show
from gradkit.widgets.request import Loaded

MOST = 12


class LoadedCard(Column):
    """Says what was loaded, in words and a small table; empty before anything was.

    Args:
        short: leave the batch out.
    """

    def __init__(self, *, short: bool = False) -> None:
        self._language, self._short = "en", short
        self.text = ipywidgets.HTML()
        super().__init__(self.text)
        self.tell(None)

    def tell(self, loaded: Loaded | None) -> None:
        """Show something else, or nothing."""
        self._loaded = loaded
        show(self, loaded is not None)
        self.speak(self._language)

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        self._language = language
        if self._loaded is not None:
            batch = "" if self._short else self._batch(self._loaded)
            look = "gkp-short" if self._short else "gkp-loaded"
            self.text.value = f'<div class="{look}">{self._model(self._loaded)}{batch}</div>'

    def _model(self, loaded: Loaded) -> str:
        model, label = loaded.step.model, loaded.step.label
        sizes = [(one.numel(), one.requires_grad) for one in model.parameters()]
        whole, trained = sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
        share = f"{100 * trained / whole:.2f}" if whole else "0"
        numbers = self._say("loaded.numbers", all=f"{whole:,}", trainable=f"{trained:,}", percent=share)
        if loaded.request.builtin:
            label = words(f"builtin.{loaded.request.builtin}.title", self._language)
        kind = type(model).__name__
        named = "" if kind == label else f" <code>{escape(kind)}</code>"
        warn = ' class="gkp-warn"' if not trained else ""
        return f"<p><strong>{escape(label)}</strong>{named}</p><p{warn}>{numbers}</p>"

    def _batch(self, loaded: Loaded) -> str:
        if loaded.batch is None:
            return f'<p class="gkp-quiet">{self._say("loaded.own_batch")}</p>'
        rows = "".join(
            f"<tr><td>{escape(row.name or '–')}</td><td>{escape(str(list(row.shape)) if row.device else '–')}</td>"
            f"<td>{escape(row.dtype)}</td><td>{escape(row.device or '–')}</td></tr>"
            for row in loaded.batch[:MOST]
        )
        left = len(loaded.batch) - MOST
        more = f'<p class="gkp-quiet">{self._say("loaded.more", n=left)}</p>' if left > 0 else ""
        names = ("name", "shape", "dtype", "device")
        head = "".join(f'<th scope="col">{self._say(f"loaded.{name}")}</th>' for name in names)
        return f'<table class="gkp-rows gkp-entries"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}'

    def _say(self, key: str, **facts: object) -> str:
        return escape(words(f"panel.{key}", self._language, **facts))
