"""The computed parts of the README, in both languages: the report of its program, the causes, the beliefs, other tools.

python tools/readme.py            write them into README.md and README.zh.md, and docs/pictures/cut.*.png
python tools/readme.py --check    exit with 1 if either page is out of date
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))

from gradkit import beliefs, guide, i18n  # noqa: E402
from gradkit.cli import main as gradkit_command  # noqa: E402
from tools import peer_table  # noqa: E402

PAGES = {"en": REPO / "README.md", "zh": REPO / "README.zh.md"}
HEADS = {"en": ("cause id", "what happened", "in one sentence"), "zh": ("原因编号", "发生了什么", "一句话说明")}
CLAIM_HEADS = {"en": ("people say", "verdict", "in one sentence"), "zh": ("有人说", "结论", "一句话说明")}


def block(page: str, mark: str) -> str:
    """The code in the fence after ``<!-- mark -->``.

    Raises:
        ValueError: the page has none, or several.
    """
    found = re.findall(rf"<!-- {mark} -->\n```\w+\n(.*?)```\n", page, re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"{len(found)} blocks marked {mark}")
    return str(found[0])


def report(program: str, language: str, picture: Path | None = None) -> str:
    """What ``gradkit diagnose train.py:step`` prints for ``program``; ``picture`` is where ``--save`` goes."""
    save = ["--save", str(picture)] if picture is not None else []
    before, printed = Path.cwd(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(program, encoding="utf-8")
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(printed):
                gradkit_command(["diagnose", "train.py:step", "--language", language, *save])
        finally:
            os.chdir(before)
    return f"```text\n{printed.getvalue()}```"


def causes(language: str) -> str:
    """The table of causes, each with a link to its guide."""
    guides = [guide.guide(cause, language) for cause in guide.causes()]
    rows = [HEADS[language], ("---",) * 3]
    rows += [(f"[`{g.cause}`](gradkit/guides/{g.cause}/{language}.md)", g.title, g.summary) for g in guides]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def claims(language: str) -> str:
    """The table of beliefs, each with a link to its text."""
    rows = [CLAIM_HEADS[language], ("---",) * 3]
    for claim in beliefs.claims(language):
        verdict = i18n.words(f"claims.verdict.{claim.verdict}", language)
        rows.append((f"[{claim.belief}](gradkit/claims/{claim.id}/{language}.md)", verdict, claim.answer))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def fresh(page: str, language: str) -> str:
    """``page`` with its computed parts computed anew.

    Raises:
        ValueError: a part's place is not marked by ``<!-- name -->`` and ``<!-- end -->``.
    """
    parts = {
        "report": report(block(page, "program: train.py"), language),
        "causes": causes(language),
        "claims": claims(language),
        "peer table": peer_table.table(language),
    }
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
    """Write both pages, or compare them."""
    check, stale = "--check" in sys.argv, 0
    for language, path in PAGES.items():
        page = path.read_text(encoding="utf-8")
        if (new := fresh(page, language)) != page:
            stale += 1
            print(f"{path.name} {'is out of date: python tools/readme.py' if check else 'written'}")
            if not check:
                path.write_text(new, encoding="utf-8")
        if not check:
            report(block(new, "program: train.py"), language, REPO / "docs" / "pictures" / f"cut.{language}.png")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
