"""The sheet that a class takes home: one page of A4 in one language, as HTML, and as PDF where a Chromium is there.

The HTML is the same at every call. A PDF carries the moment at which it was made, so that it is made on demand and
lies in no repository.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from gradkit.core import causes, i18n, package, writing
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.core.printable import entities as escape
from gradkit.report import html
from gradkit.report.markup import code, markdown, phrase

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
WAIT = 60
"""Seconds that a browser may take."""

MEASURED = """\
trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
loss = loss_of(model, batch)
loss.requires_grad, loss.grad_fn                               # 1

loss.backward()
[n for n, p in trained.items() if p.grad is None]              # 2

before = {n: p.detach().clone() for n, p in trained.items()}
optimizer.step()
[n for n, p in trained.items() if torch.equal(p, before[n])]   # 3"""

COMMANDS = (
    "gradkit run train.py",
    "gradkit diagnose train.py:step",
    "gradkit verify train.py:step --steps 5",
    "gradkit guide detach",
)


def page(language: str | None = None) -> str:
    """The sheet as one HTML document that loads nothing; printed, it fills one page.

    Args:
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Raises:
        GradkitError: ``unknown_language``.

    Example:
        >>> page("en").count("<section"), page("zh") == page("zh")
        (5, True)
    """
    with speaking(language):
        title = escape(words("sheet.title"))
        return (
            f"{html.opening(title, [_style()])}"
            f"<body><header><h1>{title}</h1><p>{phrase(words('sheet.aim'))}</p></header>\n<main>{_measure()}{_families()}"
            f"{_section('innocent')}{_section('silenced')}{_commands()}</main></body></html>\n"
        )


@functools.cache
def _style() -> str:
    return (package.FOLDER / "teaching" / "static" / "sheet.css").read_text(encoding="utf-8").strip()


def _section(name: str, before: str = "", look: str = "") -> str:
    body = before + markdown(words(f"sheet.{name}"))
    return f'<section class="{look}"><h2>{escape(words(f"sheet.{name}_title"))}</h2>{body}</section>'


def _measure() -> str:
    return _section("measure", code(MEASURED), "wide")


def _families() -> str:
    heads = "".join(
        f'<th scope="col">{escape(words(f"sheet.column.{name}"))}</th>' for name in ("what", "ask", "guides")
    )
    body = "".join(_family(name, found) for name, found in causes.families().items() if name != causes.ELSEWHERE)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f'<section class="wide"><h2>{escape(words("sheet.families_title"))}</h2>{table}</section>'


def _family(name: str, found: tuple[str, ...]) -> str:
    guides = " ".join(f"<code>{one}</code>" for one in found[:3])
    what, ask = escape(words(f"guide.family.{name}")), phrase(words(f"sheet.ask.{name}"))
    return f'<tr><th scope="row">{what}</th><td>{ask}</td><td>{guides}</td></tr>'


def _commands() -> str:
    told = "".join(
        f"<dt><code>{escape(one)}</code></dt><dd>{escape(words(f'sheet.command.{one.split()[1]}'))}</dd>"
        for one in COMMANDS
    )
    return f'<section class="wide"><h2>{escape(words("sheet.commands_title"))}</h2><dl>{told}</dl></section>'


def write_sheet(path: Path, language: str | None = None) -> None:
    """Write the sheet: ``.html``, or ``.pdf`` with the Chromium of this machine.

    Raises:
        GradkitError: ``no_sheet_of_that_kind``, ``no_browser``, ``notebook_not_writable``.
    """
    if path.suffix not in (".html", ".pdf"):
        raise GradkitError("no_sheet_of_that_kind", path=path)
    text = page(language).encode()
    try:
        writing.write(path, text if path.suffix == ".html" else as_pdf(text))
    except OSError as reason:
        raise GradkitError("notebook_not_writable", path=path, reason=reason.strerror) from reason


def browser() -> str | None:
    """The Chromium that is on this machine, by one of its usual names; None for none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def as_pdf(document: bytes) -> bytes:
    """An HTML document as PDF, printed by a browser without a window that reads nothing but this file.

    Raises:
        GradkitError: ``no_browser``: there is none, or it printed nothing.
    """
    program = browser()
    if program is None:
        raise GradkitError("no_browser", names=", ".join(BROWSERS[:3]))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "sheet.html", Path(folder) / "sheet.pdf"
        source.write_bytes(document)
        options = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={folder}/own"]
        if getattr(os, "geteuid", lambda: 1)() == 0:  # as root it refuses to start otherwise
            options.append("--no-sandbox")
        command = [program, *options, f"--print-to-pdf={target}", source.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=WAIT, check=True)
            return target.read_bytes()
        except (OSError, subprocess.SubprocessError) as reason:
            raise GradkitError("no_browser", names=", ".join(BROWSERS[:3])) from reason


def handouts(folder: Path) -> list[Path]:
    """Write the sheet in all languages into a folder: HTML, and PDF if there is a browser that prints it.

    Returns:
        The files that were written.
    """
    kinds = (".html", ".pdf") if browser() else (".html",)
    made = [folder / f"sheet.{code}{kind}" for code in i18n.LANGUAGES for kind in kinds]
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        write_sheet(path, path.stem.rpartition(".")[2])
    return made
