"""The package itself: where it lies, and its version."""

import os
from pathlib import Path

FOLDER = Path(os.path.abspath(__file__)).parents[1]  # not resolved: code objects name their files unresolved, too
VERSION = "0.1.0"
