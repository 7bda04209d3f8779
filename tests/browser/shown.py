"""A view of a drawing on a page of its own: a stand-in for the model, no kernel."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from gradkit.report.picture import viewer

SYNCED = ("language", "labels", "selected", "opened", "view", "message", "height", "name", "limit")
MOUNT = """
async ([esm, css, state]) => {
  const bytes = (text) => new DataView(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)).buffer);
  const listeners = {};
  window.saved = {};
  window.model = {
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      for (const act of listeners[`change:${name}`] ?? []) act();
    },
    on: (name, act) => (listeners[name] ??= []).push(act),
    off: (name, act) => { listeners[name] = (listeners[name] ?? []).filter((other) => other !== act); },
    save_changes: () => { window.saved = { selected: state.selected, opened: state.opened, view: state.view }; },
    receive(news) { for (const name in news) this.set(name, name === "packed" ? bytes(news[name]) : news[name]); },
  };
  state.packed = bytes(state.packed);
  const sheet = document.createElement("style");
  sheet.textContent = css;
  document.head.append(sheet);
  const module = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
  window.leave = module.default.render({ model: window.model, el: document.getElementById("here") });
}
"""
THEMES = {
    "light": '<body data-jp-theme-light="true" style="margin: 16px">',
    "dark": '<body data-jp-theme-light="false" style="margin: 16px; background: #111; --jp-layout-color1: #111;'
    " --jp-layout-color2: #212121; --jp-ui-font-color1: rgba(255, 255, 255, 0.87); --jp-border-color2: #424242;"
    ' --jp-ui-font-color2: rgba(255, 255, 255, 0.6); --jp-brand-color1: #1976d2">',
}


class Shown:
    """A view on a page."""

    def __init__(self, page, view, theme="light"):
        self.page, self.view = page, view
        page.set_content(f"<!doctype html><html><head></head>{THEMES[theme]}<div id=here></div></body></html>")
        page.evaluate(MOUNT, [viewer.script(), viewer.style(), self.state()])
        page.wait_for_selector(".gk-paper svg" if view.svg else ".gk-note:not([hidden])")
        self.stage = page.locator(".gk-stage")
        self.card = page.locator(".gk-card")
        self.settle()

    def state(self):
        packed = base64.b64encode(self.view.packed).decode()
        return {**{name: getattr(self.view, name) for name in SYNCED}, "packed": packed}

    def receive(self, **traits):
        """What the kernel would do: set traits, draw anew, send all."""
        for name, value in traits.items():
            setattr(self.view, name, value)
        self.page.evaluate("(state) => window.model.receive(state)", self.state())
        self.settle()

    def settle(self):
        self.page.wait_for_timeout(260)

    @property
    def saved(self):
        return self.page.evaluate("window.saved")

    def number(self, title):
        return next(n for n, card in self.view.node_info.items() if card["title"].startswith(title))

    def node(self, title):
        return self.page.locator(f'g.node[data-number="{self.number(title)}"]')

    def zoom(self):
        return int(self.page.locator('[data-name="actual"]').inner_text().removesuffix("%").strip())

    def shot(self, name):
        if folder := os.environ.get("GRADKIT_SHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"view-{name}.png")
