"""Colours and shapes: every state has its own colour and its own outline, for readers who see colours alike."""

from __future__ import annotations

RED, DARK_RED, AMBER, GREEN = "#D92D20", "#B42318", "#93370D", "#12A150"
INK, SOFT, GREY, PALE = "#101828", "#475467", "#667085", "#98A2B3"

BOXES = {
    "live": {"style": "rounded,filled", "fillcolor": "#ECFDF3", "color": GREEN, "penwidth": "1.4"},
    "starved": {"style": "filled", "fillcolor": "#FEF3F2", "color": RED, "penwidth": "2.2", "peripheries": "2"},
    "partly": {"style": "filled", "fillcolor": "#FEF3F2", "color": RED, "penwidth": "2.2"},
    "frozen": {"style": "rounded,filled", "fillcolor": "#F2F4F7", "color": PALE, "penwidth": "1.2"},
    "dead": {"style": "rounded,dashed", "color": PALE, "penwidth": "1.2"},
}
TEXT = {"live": (INK, "#067647"), "starved": (INK, DARK_RED), "partly": (INK, DARK_RED)}
ARROWS = {
    "live": {"dir": "back", "color": GREEN},
    "dead": {"dir": "none", "color": PALE, "style": "dashed"},
    "cut": {"dir": "none", "color": RED, "style": "dashed", "penwidth": "2.4"},
}
