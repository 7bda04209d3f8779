"""Published notebooks: run in a real kernel, with still pictures that GitHub and nbviewer show.

python -m tools.publish [NAME ...]      run these, or all that are stale, into docs/notebooks/{en,zh}/NAME.ipynb
python -m tools.publish --check         exit with 1 if one is missing, stale, too large, or shows no picture

On GitHub nothing runs: a report there is its text and a PNG of its picture, and a widget is what it says of itself.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))

from gradkit.core import i18n, settings  # noqa: E402
from gradkit.teaching import book as teaching_book  # noqa: E402

PAGES = REPO / "docs" / "notebooks"
NAMES = ("start", "cases/vision_memory")
LARGEST = 600_000  # bytes: GitHub gives up on notebooks that are much larger
ALL_TOGETHER = 2_000_000
WIDGET = "application/vnd.jupyter.widget-view+json"
OURS = re.compile(r"/[\w./+-]*/(?=gradkit/|notebooks/|site-packages/)|/[\w./-]*/ipykernel_\d+/(?=\d+\.py)")
STILL = """
import base64 as _base64
from IPython.display import display as _display
from gradkit.report.picture import render as _render  # noqa: E402
from gradkit.report import Report as _Report  # noqa: E402

def _still(self):
    picture = _base64.b64encode(_render.png(self.graph(), dpi=96)).decode()
    _display({"text/plain": self.text()}, raw=True)
    _display({"image/png": picture, "text/plain": self.verdict()}, raw=True)

_Report._ipython_display_ = _still
"""


def published(name: str, language: str) -> Path:
    """Where a published notebook lies."""
    return PAGES / language / f"{name}.ipynb"


def ran(name: str, language: str) -> Any:
    """A notebook with the outputs of a run, frozen."""
    book, folder = teaching_book.notebook(name, language), (REPO / "notebooks" / language / name).parent
    client = nbclient.NotebookClient(
        book,
        timeout=300,
        store_widget_state=False,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    with client.setup_kernel():
        client.kc.execute(STILL, silent=True, store_history=False)
        for index, cell in enumerate(book.cells):
            client.execute_cell(cell, index)
    return frozen(book)


def frozen(book: Any) -> Any:
    """A notebook without what only lives in a running one: widgets, warnings with this machine's paths."""
    book.metadata.pop("widgets", None)
    for cell in book.cells:
        if cell.cell_type == "code":
            kept = [_without_widget(one) for one in cell.outputs if one.get("name") != "stderr"]
            cell.outputs = [one for one in kept if one.output_type in ("stream", "error") or one.data]
    return nbformat.from_dict(_without_paths(book))


def _without_widget(output: Any) -> Any:
    """The output without the number of its widget; with nothing at all where its still form is an output of its own."""
    if "data" in output and output.data.pop(WIDGET, None) is not None and output.data.get("text/html") == "":
        output.data.clear()
    return output


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: found if key == "image/png" else _without_paths(found) for key, found in value.items()}
    if isinstance(value, list):
        return [_without_paths(one) for one in value]
    return OURS.sub("", value) if isinstance(value, str) else value


def faults(name: str, language: str) -> Iterator[str]:
    """What is wrong with a published notebook, one sentence each."""
    path = published(name, language)
    if not path.is_file():
        yield "missing"
        return
    page, book = nbformat.read(path, as_version=4), teaching_book.notebook(name, language)
    if [(cell.id, cell.source) for cell in page.cells] != [(cell.id, cell.source) for cell in book.cells]:
        yield "stale"
    outputs = [output for cell in page.cells for output in cell.get("outputs", ())]
    if not any("image/png" in output.get("data", ()) for output in outputs):
        yield "no picture"
    if "widgets" in page.metadata or any(WIDGET in output.get("data", ()) for output in outputs):
        yield "a widget is left in it"
    if any(output.get("name") == "stderr" for output in outputs):
        yield "standard error is left in it"
    if path.stat().st_size > LARGEST:
        yield f"{path.stat().st_size} bytes, more than {LARGEST}"


def everything_wrong() -> list[str]:
    """All faults of all published notebooks, and the files that should not be there."""
    wanted = {published(name, code): (name, code) for name in NAMES for code in i18n.LANGUAGES}
    found = [f"{path.relative_to(REPO)}: {fault}" for path, asked in wanted.items() for fault in faults(*asked)]
    found += [
        f"{path.relative_to(REPO)}: not published any more" for path in PAGES.rglob("*.ipynb") if path not in wanted
    ]
    if (size := sum(path.stat().st_size for path in PAGES.rglob("*.ipynb"))) > ALL_TOGETHER:
        found.append(f"{size} bytes together, more than {ALL_TOGETHER}")
    return found


def main() -> int:
    """Publish, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        print("\n".join(wrong := everything_wrong()) or "every published notebook is up to date")
        return int(bool(wrong))
    with tempfile.TemporaryDirectory() as folder:  # a reader's own settings stay out of it
        os.environ.update({settings.FOLDER: folder, "PYTHONPATH": str(REPO), "LC_ALL": "C.UTF-8"})
        os.environ.pop(i18n.VARIABLE, None)
        for name in options.names or NAMES:
            for language in i18n.LANGUAGES:
                if options.names or any(True for _ in faults(name, language)):
                    path, page = published(name, language), ran(name, language)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(nbformat.writes(page).rstrip("\n") + "\n", encoding="utf-8", newline="\n")
                    print(f"{path.relative_to(REPO)} {path.stat().st_size // 1000} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
