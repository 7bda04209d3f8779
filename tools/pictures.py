"""The drawings of docs/, laid out by gradkit's own renderer: docs/pictures/*.dot → .png.

python tools/pictures.py
"""

from __future__ import annotations

import sys
from pathlib import Path

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))

from gradkit.report.picture import render  # noqa: E402

PICTURES = REPO / "docs" / "pictures"


def main() -> int:
    """Lay out every drawing."""
    for source in sorted(PICTURES.glob("*.dot")):
        source.with_suffix(".png").write_bytes(render.png(source.read_text(encoding="utf-8")))
        print(f"{source.with_suffix('.png').name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
