"""What is said about a drawing as a whole: what is left out of it, and what a file that holds it is called."""

from __future__ import annotations

from gradkit.charts import Chart
from gradkit.phrases import Phrases
from gradkit.records import Picture


def limits(picture: Picture, shown: Chart, language: str | None = None) -> str:
    """What of the picture is in a chart only as boxes for what lies beyond, in words; ``""`` if nothing is.

    What is left out of every drawing stands below the drawing itself.
    """
    words = Phrases(picture, language)
    beyond = sum(len(box.members) for box in shown.boxes if box.kind == "more")
    total = len(picture.nodes)
    return words.say("near", shown=total - beyond, all=total) if beyond else ""


def name_of(picture: Picture) -> str:
    """What a file with the picture may be called after: the model's class and the first cause.

    Example:
        >>> from gradkit.records import Finding
        >>> name_of(Picture((), (), (), (Finding("detach", None),)))
        'detach'
    """
    root = next((module.kind for module in picture.modules if not module.path), "")
    causes = [finding.cause for finding in picture.findings[:1]] or ["sound"]
    return "-".join("".join(c if c.isalnum() else "_" for c in part) for part in (root, *causes) if part)
