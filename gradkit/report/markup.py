"""Markdown and code as HTML, coloured by classes, so that the page's theme decides on the colours."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from gradkit.core.printable import entities as escape
from gradkit.core.printable import escaped

_PROOF = "python proof"


def markdown(text: str) -> str:
    """CommonMark as HTML. Raw HTML in it is shown, not obeyed; a ``python proof`` is folded under the line above it.

    Example:
        >>> markdown("a *b* <i>c</i>")
        '<p>a <em>b</em> &lt;i&gt;c&lt;/i&gt;</p>\\n'
    """
    parser = _parser()
    environment: dict[str, Any] = {}
    tokens = _folded(parser.parse(text, environment))
    return escaped(str(parser.renderer.render(tokens, parser.options, environment)))


def phrase(text: str) -> str:
    """One line of CommonMark as HTML, without a paragraph around it.

    Example:
        >>> phrase("`x` is *y*")
        '<code>x</code> is <em>y</em>'
    """
    return escaped(str(_parser().renderInline(text)))


def code(text: str, kind: str = "python") -> str:
    """Code as a block of HTML.

    Args:
        text: the code, or a difference whose lines begin with ``+``, ``-`` or a space.
        kind: ``"python"``, ``"diff"``, or any other for text without colours.

    Example:
        >>> code("-x\\n+y", "diff").count("gkp-plus")
        1
    """
    if kind == "diff":
        body = _diff(text)
    else:
        body = "\n".join(_python(text)) if kind.startswith("python") else escape(text)
    return f'<pre class="gkp-code" tabindex="0">{body}</pre>'


def _python(text: str) -> list[str]:
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    return (
        str(highlight(escaped(text), lexer, HtmlFormatter(nowrap=True, classprefix="gkp-c-"))).rstrip("\n").split("\n")
    )


def _diff(text: str) -> str:
    lines = text.split("\n")
    bodies = _python("\n".join(line[1:] for line in lines))
    kinds = {"+": " gkp-plus", "-": " gkp-minus"}
    return "".join(
        f'<span class="gkp-line{kinds.get(line[:1], "")}">'
        f'<span class="gkp-sign">{escape(line[:1]) or " "}</span> {body}</span>'
        for line, body in zip(lines, bodies, strict=False)
    )


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("fence", _fence)
    return parser


def _fence(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _environment: Any) -> str:
    return code(tokens[index].content.rstrip("\n"), tokens[index].info.strip())


def _folded(tokens: Sequence[Token]) -> list[Token]:
    """Every proof inside a closed ``<details>``; the paragraph before it, if there is one, becomes the summary."""
    made: list[Token] = []
    for token in tokens:
        if token.type != "fence" or token.info.strip() != _PROOF:
            made.append(token)
            continue
        if len(made) > 2 and made[-1].type == "paragraph_close":
            made[-3] = _html('<details class="gkp-proof"><summary>')
            made[-1] = _html("</summary>")
        else:
            made.append(_html('<details class="gkp-proof"><summary>✓</summary>'))
        made += [token, _html("</details>\n")]
    return made


def _html(content: str) -> Token:
    return Token("html_block", "", 0, content=content)
