"""The package itself: where it lies, and its version."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]
VERSION = "0.1.0"
