"""The parameters counted by module: how many elements there are, should train, may train, and are reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gradkit.core import printable
from gradkit.core.i18n import columns, words
from gradkit.core.records import ModuleInfo, Parameter

COUNTS = ("numel", "should_train", "trainable", "reached")
GOOD, STARVED, PARTLY, LOOSE = "good", "starved", "partly", "loose"


@dataclass(frozen=True)
class Share:
    """What one module holds, counted in elements; or one parameter, as the last step down.

    A tensor that the model holds under several names counts once, under the first of them.

    Attributes:
        path: dotted path; of the first row, of the innermost module that holds everything.
        kind: class name of the module, ``""`` for a parameter.
        level: how far below the first row.
        numel: elements in all.
        should_train: those that a gradient is expected to reach.
        trainable: those with ``requires_grad``.
        reached: those that backward hands a gradient.
        starved: those that should train and get no gradient.
        loose: those with ``requires_grad`` that are not among what should train.
        mode: ``"train"``, ``"eval"`` or ``"mixed"``, of the module and all that is in it.
        deeper: whether there is a further step down.
    """

    path: str
    kind: str
    level: int
    numel: int
    should_train: int
    trainable: int
    reached: int
    starved: int
    loose: int
    mode: str
    deeper: bool

    @property
    def remarks(self) -> tuple[str, ...]:
        """``"good"``, ``"starved"`` (nothing that should train gets a gradient), ``"partly"`` (some of it is not) and
        ``"loose"`` (something may train that should not); ``()`` where nothing should train and nothing does."""
        missing = (STARVED if self.starved == self.should_train else PARTLY) if self.starved else ""
        found = [missing] if missing else [GOOD] if self.should_train else []
        return (*found, LOOSE) if self.loose else tuple(found)


@dataclass
class _Sum:
    counts: list[int] = field(default_factory=lambda: [0] * 6)
    flags: set[bool] = field(default_factory=set)
    deeper: bool = False


def shares(rows: Sequence[Parameter], modules: Iterable[ModuleInfo] = (), depth: int = 1) -> tuple[Share, ...]:
    """Count by module, from the outside in; every module stands right before what is in it.

    Args:
        rows: the parameter table of a report.
        modules: the modules of its picture, for their classes and modes.
        depth: how many steps to go down from the innermost module that holds everything.

    Example:
        >>> row = Parameter("fc.weight", (2, 3), 6, "float32", True, True, True, True, False, None, "Linear")
        >>> [(share.path, share.numel, share.remarks) for share in shares((row,))]
        [('fc', 6, ('starved',)), ('fc.weight', 6, ('starved',))]
    """
    tensors = _tensors(rows)
    infos = {info.path: info for info in modules}
    top = _common([tuple(name.split(".")[:-1]) for name in tensors])
    sums: dict[tuple[str, ...], _Sum] = {}
    for name, named in tensors.items():
        parts = tuple(name.split("."))
        for end in range(len(top), min(len(parts), len(top) + depth) + 1):
            known = sums.setdefault(parts[:end], _Sum())
            known.counts = [a + b for a, b in zip(known.counts, _counts(named), strict=True)]
            known.flags |= {row.training for row in named}
            known.deeper |= end < len(parts)
    for path, info in infos.items():
        parts = tuple(path.split(".")) if path else ()
        for end in range(len(top), min(len(parts), len(top) + depth) + 1):
            if parts[:end] in sums:
                sums[parts[:end]].flags.add(info.training)
    return tuple(_share(parts, known, len(top), infos) for parts, known in sums.items())


def _tensors(rows: Sequence[Parameter]) -> dict[str, list[Parameter]]:
    """The rows of each tensor, by its first name."""
    found: dict[str, list[Parameter]] = {}
    for row in rows:
        found.setdefault(row.same_as or row.name, []).append(row)
    return found


def _counts(named: Sequence[Parameter]) -> tuple[int, ...]:
    numel = named[0].numel
    wanted, free = any(row.should_train for row in named), any(row.requires_grad for row in named)
    reached = any(row.reached for row in named)
    told = (True, wanted, free, reached, wanted and not reached, free and not wanted)
    return tuple(numel if one else 0 for one in told)


def _common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    same = next((at for at, part in enumerate(first) if part != last[at]), len(first))
    return first[:same]


def _share(parts: tuple[str, ...], known: _Sum, top: int, infos: dict[str, ModuleInfo]) -> Share:
    path = ".".join(parts)
    kind = infos[path].kind if path in infos else ""
    mode = "mixed" if len(known.flags) > 1 else "train" if True in known.flags else "eval"
    numel, should_train, trainable, reached, starved, loose = known.counts
    return Share(
        path, kind, len(parts) - top, numel, should_train, trainable, reached, starved, loose, mode, known.deeper
    )


# -- words ----------------------------------------------------------------------------------------------------------


def remarks(share: Share) -> str:
    """What is to be said of a share, ``""`` for nothing."""
    said = []
    for name in share.remarks:
        key = "loose_frozen" if name == LOOSE and not share.should_train else name
        size = share.loose if name == LOOSE else share.starved
        said.append(words(f"breakdown.{key}", size=f"{size:,}"))
    return words("breakdown.join").join(said)


def name(share: Share) -> str:
    """What to call a share: the last part of its path; the whole model has a name of its own."""
    return printable.name(share.path.rpartition(".")[2] if share.level else share.path) or words("breakdown.whole")


def table(found: Sequence[Share]) -> list[list[str]]:
    """The head, then a row for each share: name (indented by how far down it is), counts, mode and remarks."""
    head = [words(f"breakdown.{column}") for column in ("module", *COUNTS, "mode")]
    lines = [[*head, ""]]
    for share in found:
        counts = [f"{getattr(share, column):,}" for column in COUNTS]
        mode = words(f"breakdown.{share.mode}")
        lines.append(["  " * share.level + name(share), *counts, mode, remarks(share)])
    return lines


def write(found: Sequence[Share]) -> str:
    """The table for a terminal."""
    lines = [[printable.fitted(cell) for cell in row] for row in table(found)]
    last = len(lines[0]) - 1  # remarks are as long as they are
    widths = [max(columns(line[at]) for line in lines) for at in range(last)]
    told = [printable.fitted(words("breakdown.title")), *(_line(one, widths) for one in lines)]
    return printable.inert("".join(f"{line}\n" for line in told))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for at, (cell, width) in enumerate(zip(cells, widths, strict=False)):
        pad = " " * (width - columns(cell))
        padded.append(cell + pad if at in (0, len(widths) - 1) else pad + cell)
    return "  ".join([*padded, *cells[len(widths) :]]).rstrip()
