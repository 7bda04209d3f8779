"""gradkit names the line of your code where the gradient was lost, proves it, draws it and teaches the fix."""

from gradkit.diagnose import diagnose as diagnose
from gradkit.errors import GradkitError as GradkitError
from gradkit.i18n import language as language

__version__ = "0.1.0"
__all__ = ["GradkitError", "__version__", "diagnose", "language"]
