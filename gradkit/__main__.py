"""``python -m gradkit``: the same as the ``gradkit`` command."""

from __future__ import annotations

import sys

from gradkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
