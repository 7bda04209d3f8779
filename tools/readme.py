"""The computed parts of the README and of pages in docs/, in both languages: the badge, what gradkit says of a program,
the causes, the beliefs, the notebooks, the table of other tools, and how many there are of each.

python tools/readme.py            write them into the pages, and docs/pictures/cut.*.png
python tools/readme.py --check    exit with 1 if a page is out of date
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))

import torch  # noqa: E402

from gradkit.cli import main as gradkit_command  # noqa: E402
from gradkit.core import i18n  # noqa: E402
from gradkit.core.causes import causes as all_causes  # noqa: E402
from gradkit.core.causes import families  # noqa: E402
from gradkit.teaching import book  # noqa: E402
from gradkit.teaching import claim as teaching_claim  # noqa: E402
from gradkit.teaching.guide import guide  # noqa: E402
from tools import peer_table, publish  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = {"en": REPO / "README.md", "zh": REPO / "README.zh.md"}
LAUNCH = {"en": "Open it on Binder", "zh": "在 Binder 上打开"}
HEADS = {"en": ("cause id", "what happened", "in one sentence"), "zh": ("原因编号", "发生了什么", "一句话说明")}
BOOK_HEADS = {"en": ("notebook", "to run", "with outputs, to read"), "zh": ("notebook", "运行", "带运行结果的版本")}
GUIDE_BOOKS = {"en": "A guide to each of the {n} causes", "zh": "{n} 种原因的指南"}
CLAIM_HEADS = {"en": ("people say", "verdict", "in one sentence"), "zh": ("有人说", "结论", "一句话说明")}
WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


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
        rows += [
            (f"[`{g.cause}`](gradkit/teaching/guides/{g.cause}/{language}.md)", g.title, g.summary) for g in guides
        ]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        tables.append(f"**{i18n.words(f'guide.family.{family}', language)}**\n\n{table}")
    return "\n\n".join(tables)


def short_causes(language: str) -> str:
    """The causes by family, a row each, without a word about any of them."""
    rows = [WORDS[language]["families"], ("---",) * 2]
    for family, names in families().items():
        links = ", ".join(f"[`{cause}`](gradkit/teaching/guides/{cause}/{language}.md)" for cause in names)
        rows.append((i18n.words(f"guide.family.{family}", language), links))
    return _table(rows)


def claims(language: str) -> str:
    """The table of beliefs, each with a link to its text."""
    rows = [CLAIM_HEADS[language], ("---",) * 3]
    for claim in teaching_claim.claims(language):
        verdict = i18n.words(f"claims.verdict.{claim.verdict}", language)
        rows.append((f"[{claim.belief}](gradkit/teaching/claims/{claim.id}/{language}.md)", verdict, claim.answer))
    return _table(rows)


def notebooks(language: str) -> str:
    """The table of notebooks: where each lies, and where its published copy does; the guides' own are built."""
    rows = [BOOK_HEADS[language], ("---",) * 3]
    for name in books():
        path = f"{language}/{name}.ipynb"
        shown = f"[{name}](docs/notebooks/{path})" if name in publish.NAMES else "–"
        rows.append((book.book_title(name, language), f"[{name}](notebooks/{path})", shown))
    title = f"[{GUIDE_BOOKS[language].format(n=len(all_causes()))}](docs/{_named('causes', language)})"
    rows.append((title, "`gradkit notebooks my-folder guides`", "–"))
    return _table(rows)


def books() -> list[str]:
    """The books that are no guides and no solutions, the start notebook first."""
    shown = [name for name in book.book_sources() if "/solutions/" not in f"/{name}"]
    return sorted(shown, key=lambda name: (name != "start", "/" in name, name))


def more(language: str) -> str:
    """The table of pages, with how many causes, beliefs, notebooks and tools they tell of."""
    counts = {
        "causes": len(all_causes()),
        "claims": len(teaching_claim.claims(language)),
        "books": len(books()),
        "tools": peer_table.others(),
    }
    rows = [WORDS[language]["pages"], ("---",) * 2]
    for one in WORDS[language]["page"]:
        link = f"[{one['title']}](docs/{_named(one['name'], language)})"
        rows.append((link, one["tells"].format(**counts)))
    return _table(rows)


def _named(name: str, language: str) -> str:
    translated = (REPO / "docs" / f"{name}.{language}.md").is_file()
    return f"{name}.{language}.md" if translated else f"{name}.md"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _from_docs(text: str) -> str:
    """A text whose links hold in the folder docs/, from one whose links hold beside it."""
    return re.sub(r"\]\((docs/|(?=gradkit/|notebooks/))", lambda found: "](" if found[1] else "](../", text)


def _of_readme(language: str) -> dict[str, str]:
    return {
        "badges": badges(language),
        "report": report(_program(language), language),
        "short causes": short_causes(language),
        "more": more(language),
    }


def _of_ci(language: str) -> dict[str, str]:
    program, step = _program(language), ("train.py:step", "--language", language)
    return {"verify": says(program, "verify", *step), "scan": says(program, "scan", ".", "--step", *step)}


def _program(language: str) -> str:
    return block(PAGES[language].read_text(encoding="utf-8"), "program: train.py")


# Each page, without its ending, and what is computed in it.
PARTS: dict[str, Callable[[str], dict[str, str]]] = {
    "README": _of_readme,
    "docs/causes": lambda language: {"causes": _from_docs(causes(language))},
    "docs/ci": _of_ci,
    "docs/claims": lambda language: {"claims": _from_docs(claims(language))},
    "docs/notebooks": lambda language: {"notebooks": _from_docs(notebooks(language))},
    "docs/other_tools": lambda language: {"peer table": peer_table.table(language)},
}


def page(name: str, language: str) -> Path:
    """The file of a page in ``PARTS``."""
    return REPO / f"{name}{'' if language == 'en' else f'.{language}'}.md"


def fresh(name: str, language: str) -> str:
    """A page of ``PARTS`` with its computed parts computed anew.

    Raises:
        ValueError: a part's place is not marked by ``<!-- name -->`` and ``<!-- end -->``.
    """
    return _filled(page(name, language).read_text(encoding="utf-8"), PARTS[name](language))


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
    for name, language in itertools.product(PARTS, PAGES):
        path = page(name, language)
        if (new := fresh(name, language)) != path.read_text(encoding="utf-8"):
            stale += 1
            print(f"{path.name} {'is out of date: python tools/readme.py' if check else 'written'}")
            if not check:
                path.write_text(new, encoding="utf-8")
    for language in PAGES if not check else ():
        report(_program(language), language, REPO / "docs" / "pictures" / f"cut.{language}.png")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
