"""A report in the output of a notebook's cell: the page in a frame of its own, and a still form beside it.

All of it is saved in the notebook: it needs no kernel when it is opened again, and neither does what is made of the
notebook. Where a notebook is not trusted, and on GitHub, frame, style and script are taken out; then the text and the
picture are seen that lie beside them.
"""

from __future__ import annotations

import base64

from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.core.printable import entities as escape
from gradkit.report import html
from gradkit.report.picture import render

_DPI = 72
_FIRST_HEIGHT = 900
_STYLE = (
    ".gk-frame{border:0;display:block;width:100%;color-scheme:auto;background:transparent}"
    ".gk-frame~.gk-in-place{display:none}"
)
# One listener for all frames of a notebook: each becomes as high as its page says, and is told if the notebook is dark.
_SCRIPT = (
    """
(() => {
  if (window.gradkitFrames) return;
  window.gradkitFrames = true;
  const dark = () => document.body.dataset.jpThemeLight === "false" || document.body.classList.contains("vscode-dark");
  const known = () => "jpThemeLight" in document.body.dataset || /vscode-/.test(document.body.className);
  const frames = () => [...document.querySelectorAll("iframe.gk-frame")];
  const onSlide = (frame) => frame.closest(".reveal .slides") != null; // as RISE shows a notebook
  const tell = (frame) => {
    if (known()) frame.contentWindow?.postMessage({ gradkit: "theme", dark: dark() }, "*");
    if (onSlide(frame)) frame.contentWindow?.postMessage({ gradkit: "slide", height: innerHeight }, "*");
  };
  const answer = (frame, asked) => {
    const known = asked.filter((one) => typeof one?.file === "string").map((one) => ({ ...one, opens: canOpen(one) }));
    frame.contentWindow?.postMessage({ gradkit: "opens", known }, "*");
  };
  window.addEventListener("message", ({ data, source }) => {
    const from = frames().find((one) => one.contentWindow === source);
    if (from && data?.gradkit === "places" && Array.isArray(data.asked)) answer(from, data.asked);
    const wanted = from && data?.gradkit === "open" ? data.place : null;
    if (typeof wanted?.file === "string") openPlace(wanted, from.parentElement);
    if (data?.gradkit !== "height" || !(data.height > 0 && data.height < 50000)) return;
    const frame = frames().find((one) => one.contentWindow === source);
    if (!frame) return;
    frame.style.height = `${Math.ceil(data.height)}px`;
    tell(frame);
  });
  new MutationObserver(() => frames().forEach(tell)).observe(document.body, { attributes: true });
"""
    + html.places_script()
    + "})();\n"
)


def write(page: str, still: str, title: str) -> str:
    """The output.

    Args:
        page: a page that needs nothing else.
        still: HTML of the same, without anything that runs.
        title: what the frame is called.

    Example:
        >>> shown = write("<p>&</p>", "<p>still</p>", "gradkit")
        >>> 'srcdoc="&lt;p&gt;&amp;&lt;/p&gt;"' in shown, 'sandbox="allow-scripts allow-downloads"' in shown
        (True, True)
    """
    inside = page.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return (
        f'<div class="gk-cell"><style>{_STYLE}</style>'
        f'<iframe class="gk-frame" title="{escape(title)}" sandbox="allow-scripts allow-downloads" loading="lazy" '
        f'height="{_FIRST_HEIGHT}" srcdoc="{inside}"></iframe>'
        f'<div class="gk-in-place">{still}</div><script>{_SCRIPT}</script></div>'
    )


def still_picture(dot: render.Dot) -> str:
    """A drawing as a bitmap in HTML, which is left in where vector graphics are taken out; else the reason in words.

    Example:
        >>> still_picture("digraph { a }").startswith('<img alt="')
        True
    """
    try:
        coded = base64.b64encode(render.png(dot, dpi=_DPI)).decode()
    except GradkitError as error:
        return f"<p>{escape(error.text())}</p>"
    return f'<img alt="{escape(words("picture.title"))}" src="data:image/png;base64,{coded}">'
