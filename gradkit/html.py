"""The report as HTML: the same sections as the text, with the picture, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gradkit import i18n
from gradkit.layout import CodeLine, Section

STYLE = """
.gk{--gk-fg:var(--jp-content-font-color1,var(--vscode-foreground,#1f2328));--gk-dim:var(--jp-content-font-color2,#59636e);
--gk-bg:var(--jp-layout-color1,var(--vscode-editor-background,#fff));--gk-soft:var(--jp-layout-color2,rgba(127,127,127,.10));
--gk-line:var(--jp-border-color2,rgba(127,127,127,.35));--gk-bad:#d1242f;--gk-good:#1a7f37;--gk-note:#0969da;
color:var(--gk-fg);background:var(--gk-bg);font:14px/1.5 var(--jp-content-font-family,system-ui,-apple-system,"Segoe UI",
"PingFang SC","Microsoft YaHei","Noto Sans CJK SC",sans-serif);max-width:1060px}
.gk *{box-sizing:border-box}
.gk .gk-verdict{border-left:4px solid var(--gk-bad);padding:8px 12px;margin:0 0 12px;background:var(--gk-soft);font-weight:600}
.gk .gk-verdict.ok{border-color:var(--gk-good)}
.gk .gk-card{border:1px solid var(--gk-line);border-radius:6px;margin:0 0 12px;padding:10px 14px}
.gk .gk-title{font-weight:600;margin:0}.gk .gk-cause{color:var(--gk-bad);font-family:var(--jp-code-font-family,monospace)}
.gk .gk-place{color:var(--gk-dim);margin:0 0 6px;overflow-wrap:anywhere}
.gk pre.gk-code{font:13px/1.45 var(--jp-code-font-family,ui-monospace,Menlo,Consolas,"Noto Sans Mono CJK SC",monospace);
background:var(--gk-soft);color:var(--gk-fg);padding:8px 10px;margin:4px 0 8px;border-radius:4px;overflow-x:auto;white-space:pre}
.gk .gk-num{color:var(--gk-dim);user-select:none}.gk .gk-hit{text-decoration:underline wavy var(--gk-bad);
text-underline-offset:3px;font-weight:600}.gk .gk-caret{color:var(--gk-bad)}
.gk .gk-minus{color:var(--gk-bad)}.gk .gk-plus{color:var(--gk-good)}
.gk dl.gk-facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 12px;margin:0 0 8px}
.gk dl.gk-facts dt{color:var(--gk-dim)}.gk dl.gk-facts dd{margin:0;overflow-wrap:anywhere}
.gk .gk-note{color:var(--gk-note);font-weight:600}.gk .gk-help{color:var(--gk-good);font-weight:600}
.gk .gk-more{color:var(--gk-dim);margin:4px 0 0}
.gk .gk-paper{background:#fff;border:1px solid var(--gk-line);border-radius:6px;padding:8px;overflow:auto;max-height:640px}
.gk .gk-summary{color:var(--gk-dim)}
.jp-mod-dark .gk,[data-jp-theme-light="false"] .gk,.vscode-dark .gk{--gk-bad:#ff7b72;--gk-good:#56d364;--gk-note:#79c0ff}
"""


def write(
    sections: Iterable[Section], verdict: str, summary: str, *, healthy: bool, drawing: str = "", language: str | None = None
) -> str:
    """A fragment that stands on its own: style, verdict, one card a finding, and the picture (SVG text) if there is one.

    Example:
        >>> "gk-verdict ok" in write((), "Sound.", "4 of 4", healthy=True)
        True
    """
    parts = [
        f'<div class="gk" lang="{"zh-CN" if (language or i18n.language()) == "zh" else "en"}"><style>{STYLE}</style>',
        f'<p class="gk-verdict{" ok" if healthy else ""}">{"✓" if healthy else "✗"} {escape(verdict)}</p>',
        *(card(section, language) for section in sections),
    ]
    if drawing:
        parts.append(f'<div class="gk-paper">{drawing}</div>')
    parts.append(f'<p class="gk-summary">{escape(summary)}</p></div>')
    return "\n".join(parts)


def page(fragment: str, title: str, language: str | None = None) -> str:
    """A whole document around a fragment, for a file."""
    code = "zh-CN" if (language or i18n.language()) == "zh" else "en"
    return (
        f'<!doctype html><html lang="{code}"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"></head><body style="margin:24px">{fragment}</body></html>\n'
    )


def card(section: Section, language: str | None = None) -> str:
    """One finding."""
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in section.facts)
    notes = "".join(
        f'<p><span class="gk-note">{_word("note", language)}</span> {escape(text)} '
        f'<span class="gk-place">{escape(place)}</span></p>{code(lines)}'
        for text, place, lines in section.notes
    )
    more = i18n.words("report.more", language, command=f"gradkit guide {section.cause}") if section.guide else ""
    return (
        f'<div class="gk-card"><p class="gk-title"><span class="gk-cause">{escape(section.cause)}</span> '
        f'{escape(section.title)}</p><p class="gk-place">{escape(section.place)}</p>{code(section.code)}'
        f'<dl class="gk-facts">{facts}</dl>{notes}'
        f'<p><span class="gk-help">{_word("help", language)}</span> {escape(section.help)}</p>{code(section.change)}'
        f'<p class="gk-more">{escape(more)}</p></div>'
    )


def code(lines: Iterable[CodeLine]) -> str:
    """Lines of code with their numbers; the expression in question is underlined, its label stands below it."""
    rows = [row for line in lines for row in _rows(line)]
    return f'<pre class="gk-code">{chr(10).join(rows)}</pre>' if rows else ""


def _rows(line: CodeLine) -> Iterable[str]:
    number = f'<span class="gk-num">{line.number:>4} </span>'
    if line.sign in ("+", "-"):
        kind = "gk-plus" if line.sign == "+" else "gk-minus"
        return [f'{number}<span class="{kind}">{line.sign} {escape(line.text)}</span>']
    if not line.start:
        return [f"{number}{escape(line.text)}"]
    before, hit, after = line.text[: line.start - 1], line.text[line.start - 1 : line.end - 1], line.text[line.end - 1 :]
    rows = [f'{number}{escape(before)}<span class="gk-hit">{escape(hit)}</span>{escape(after)}']
    if line.label:
        indent = len(line.text) - len(line.text.lstrip())
        rows.append(f'<span class="gk-num">     </span>{line.text[:indent]}<span class="gk-caret">↑ {escape(line.label)}</span>')
    return rows


def _word(key: str, language: str | None) -> str:
    return escape(i18n.words(f"report.{key}", language))
