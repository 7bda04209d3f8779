"""The computed parts of the README and of docs/ci.md, in both languages: the badge, what gradkit says of its program,
the causes, the beliefs, the table of other tools.

python tools/readme.py            write them into the pages, and docs/pictures/cut.*.png
python tools/readme.py --check    exit with 1 if a page is out of date
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))

import torch  # noqa: E402

from gradkit import beliefs, bookshelf, i18n  # noqa: E402
from gradkit.cause_registry import causes as all_causes  # noqa: E402
from gradkit.cause_registry import families  # noqa: E402
from gradkit.cli import main as gradkit_command  # noqa: E402
from gradkit.guide import guide  # noqa: E402
from tools import peer_table, publish  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = {"en": REPO / "README.md", "zh": REPO / "README.zh.md"}
CI_PAGES = {"en": REPO / "docs" / "ci.md", "zh": REPO / "docs" / "ci.zh.md"}
LAUNCH = {"en": "Open it on Binder", "zh": "在 Binder 上打开"}
HEADS = {"en": ("cause id", "what happened", "in one sentence"), "zh": ("原因编号", "发生了什么", "一句话说明")}
BOOK_HEADS = {"en": ("notebook", "to run", "with outputs, to read"), "zh": ("notebook", "运行", "带运行结果的版本")}
GUIDE_BOOKS = {"en": "A guide to each of the {n} causes", "zh": "{n} 种原因的指南"}
CLAIM_HEADS = {"en": ("people say", "verdict", "in one sentence"), "zh": ("有人说", "结论", "一句话说明")}


def repository() -> str:
    """``owner/name`` on GitHub, from ``pyproject.toml``, the one place that says it."""
    address = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    return str(address).removeprefix("https://github.com/")


def badges(language: str) -> str:
    """The badge that opens the start notebook in ``language`` on Binder."""
    path = quote(f"lab/tree/notebooks/{language}/start.ipynb", safe="")
    address = f"https://mybinder.org/v2/gh/{repository()}/HEAD?urlpath={path}"
    return f"[![{LAUNCH[language]}](https://mybinder.org/badge_logo.svg)]({address})"


def block(page: str, mark: str) -> str:
    """The code in the fence after ``<!-- mark -->``.

    Raises:
        ValueError: the page has none, or several.
    """
    found = re.findall(rf"<!-- {mark} -->\n```\w+\n(.*?)```\n", page, re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"{len(found)} blocks marked {mark}")
    return str(found[0])


def says(program: str, *given: str) -> str:
    """What ``gradkit`` prints for these words, in a folder that holds ``program`` as train.py."""
    before, printed = Path.cwd(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(program, encoding="utf-8")
        os.chdir(folder)
        try:
            torch.manual_seed(0)
            with contextlib.redirect_stdout(printed):
                gradkit_command(list(given))
        finally:
            os.chdir(before)
    return f"```text\n{printed.getvalue()}```"


def report(program: str, language: str, picture: Path | None = None) -> str:
    """What ``gradkit diagnose train.py:step`` prints for ``program``; ``picture`` is where ``--save`` goes."""
    save = ["--save", str(picture)] if picture is not None else []
    return says(program, "diagnose", "train.py:step", "--language", language, *save)


def causes(language: str) -> str:
    """The causes, a table for each family, each with a link to its guide."""
    tables = []
    for family, names in families().items():
        guides = [guide(cause, language) for cause in names]
        rows = [HEADS[language], ("---",) * 3]
        rows += [(f"[`{g.cause}`](gradkit/guides/{g.cause}/{language}.md)", g.title, g.summary) for g in guides]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        tables.append(f"**{i18n.words(f'guide.family.{family}', language)}**\n\n{table}")
    return "\n\n".join(tables)


def claims(language: str) -> str:
    """The table of beliefs, each with a link to its text."""
    rows = [CLAIM_HEADS[language], ("---",) * 3]
    for claim in beliefs.claims(language):
        verdict = i18n.words(f"claims.verdict.{claim.verdict}", language)
        rows.append((f"[{claim.belief}](gradkit/claims/{claim.id}/{language}.md)", verdict, claim.answer))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def notebooks(language: str) -> str:
    """The table of notebooks: where each lies, and where its published copy does."""
    rows = [BOOK_HEADS[language], ("---",) * 3]
    for name in bookshelf.sources():
        if "/solutions/" not in f"/{name}":
            path, shown = f"{language}/{name}.ipynb", "–"
            if name in publish.names():
                shown = f"[{name}](docs/notebooks/{path})"
            rows.append((bookshelf.title(name, language), f"[{name}](notebooks/{path})", shown))
    shown = ", ".join(f"[{cause}](docs/notebooks/{language}/guides/{cause}.ipynb)" for cause in publish.GUIDES)
    title = GUIDE_BOOKS[language].format(n=len(all_causes()))
    rows.append((title, f"[guides](notebooks/{language}/guides)", shown))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def fresh(page: str, language: str) -> str:
    """The README ``page`` with its computed parts computed anew.

    Raises:
        ValueError: a part's place is not marked by ``<!-- name -->`` and ``<!-- end -->``.
    """
    parts = {
        "badges": badges(language),
        "report": report(block(page, "program: train.py"), language),
        "causes": causes(language),
        "claims": claims(language),
        "notebooks": notebooks(language),
        "peer table": peer_table.table(language),
    }
    return _filled(page, parts)


def fresh_ci(page: str, language: str) -> str:
    """docs/ci.md likewise: it is about the README's program.

    Raises:
        ValueError: as for :func:`fresh`.
    """
    program = block(PAGES[language].read_text(encoding="utf-8"), "program: train.py")
    step = ("train.py:step", "--language", language)
    return _filled(
        page, {"verify": says(program, "verify", *step), "scan": says(program, "scan", ".", "--step", *step)}
    )


def _filled(page: str, parts: dict[str, str]) -> str:
    for name, text in parts.items():
        page, times = re.subn(
            f"<!-- {name} -->.*?<!-- end -->",
            lambda _, n=name, t=text: f"<!-- {n} -->\n{t}\n<!-- end -->",
            page,
            flags=re.DOTALL,
        )
        if times != 1:
            raise ValueError(f"{times} places marked {name}")
    return page


def main() -> int:
    """Write the pages, or compare them."""
    check, stale = "--check" in sys.argv, 0
    for pages, renew in ((PAGES, fresh), (CI_PAGES, fresh_ci)):
        for language, path in pages.items():
            page = path.read_text(encoding="utf-8")
            if (new := renew(page, language)) != page:
                stale += 1
                print(f"{path.name} {'is out of date: python tools/readme.py' if check else 'written'}")
                if not check:
                    path.write_text(new, encoding="utf-8")
    for language, path in PAGES.items() if not check else ():
        program = block(path.read_text(encoding="utf-8"), "program: train.py")
        report(program, language, REPO / "docs" / "pictures" / f"cut.{language}.png")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
