"""Which modules the map shows as a box of their own: a model's tree, unfolded where it matters."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from gradkit.core.records import ModuleInfo, Node, Picture

MOST = 60
"""How many boxes a map has at most, unless a person opens more."""

MOST_PLATES = 24
"""How many findings have a plate in a map, or beside the flow of any drawing: the first ones, the most blocking."""

FOLDED = "-"
"""Begins the path of a module that a person folded, among the things that they opened."""

_ENOUGH, _ENOUGH_FROZEN, _AROUND_A_CUT, _PARTS, _SHORT = 10, 5, 30, 44, 4
_LAST = 1 << 60


@dataclass(frozen=True)
class Part:
    """Modules that share one box: a single one, or siblings in forward order.

    Attributes:
        paths: their dotted paths.
        kind: their class name; ``""`` if they are of several classes.
    """

    paths: tuple[str, ...]
    kind: str


class Outline:
    """The tree of the modules that take part in a picture.

    Example:
        >>> picture = Picture(nodes=(Node(1, "linear", "call", "dead", module="net.0"),), edges=(),
        ...                   modules=(ModuleInfo("net.0", "Linear", 6, 0, 0, True),), findings=())
        >>> [part.paths for part in Outline(picture).parts()]
        [('net',)]
    """

    def __init__(self, picture: Picture) -> None:
        self.info: dict[str, ModuleInfo] = {module.path: module for module in picture.modules}
        self.cuts: list[str] = []
        self._first_cuts: dict[int | None, str] = {}
        self._branches: dict[str, _Branch] = {}
        self._folded: set[str] = set()
        own: dict[str, _Branch] = {}
        for node in picture.nodes:
            if node.kind == "cut":
                self.cuts.append(node.module)
                self._first_cuts.setdefault(node.finding, node.module)
            if node.kind not in ("input", "loss", "fixed"):
                own.setdefault(node.module, _Branch(node.module)).add(node)
        for module, held in own.items():
            for path in lineage(module):
                self._branches.setdefault(path, _Branch(path)).join(held)
        for path in self._branches:
            if path:
                self._branches[_parent(path)].children.append(path)
        for branch in self._branches.values():
            branch.children.sort(key=lambda path: (self._branches[path].first, self._branches[path].first_parameter))

    def parts(self, opened: Iterable[str] = ()) -> tuple[Part, ...]:
        """The boxes of the map, in no particular order; what lies in ``opened`` is unfolded in any case.

        Args:
            opened: paths of modules to unfold; behind ``FOLDED``, of those to fold.
        """
        asked = set(opened)
        self._folded = {path[1:] for path in asked if path[:1] == FOLDED and path[1:] in self._branches}
        by_hand = {path for path in asked if path in self._branches and not self._folded.intersection(lineage(path))}
        unfolded = {"", *(above for path in by_hand for above in lineage(path))}
        found = self._frontier(unfolded, by_hand)
        for path in self._worth_a_look(by_hand):
            found = self._unfold(path, found, unfolded, by_hand, _AROUND_A_CUT)
        found = self._unfold_by_size(found, unfolded, by_hand)
        return found if len(found) <= _PARTS or by_hand else self._packed(found)

    def children(self, path: str) -> tuple[str, ...]:
        """The modules right below a path, in forward order, that take part in the picture."""
        return tuple(self._branches[path].children) if path in self._branches else ()

    def _worth_a_look(self, by_hand: set[str]) -> list[str]:
        """Modules around the first cut of each finding, and those of which some parameters train and others starve.

        Outer ones come first. What a person unfolded shows its parts whole: they can be unfolded in turn.
        """
        around = {path for cut in self._first_cuts.values() for path in lineage(cut)}
        mixed = {
            path
            for path, branch in self._branches.items()
            if {"starved", "live"} <= branch.parameters and not by_hand.intersection(lineage(path)[:-1])
        }
        return sorted(around | mixed, key=lambda path: (path.count("."), path))

    def _unfold(
        self, path: str, shown: tuple[Part, ...], unfolded: set[str], by_hand: set[str], most: int
    ) -> tuple[Part, ...]:
        """Unfold a module if it has a box to itself and several inside, and the map stays small; the boxes then."""
        if path in self._folded or len(shown) >= most or not any(part.paths == (path,) for part in shown):
            return shown
        chain = {path}
        inside = self._runs(path, unfolded, by_hand)
        while len(inside) == 1 and len(inside[0].paths) == 1 and inside[0].paths[0] not in self._folded:
            chain.add(inside[0].paths[0])
            inside = self._runs(inside[0].paths[0], unfolded, by_hand)
        if len(inside) < 2 or len(shown) - 1 + len(inside) > most:
            return shown
        unfolded |= chain
        return self._frontier(unfolded, by_hand)

    def _unfold_by_size(self, shown: tuple[Part, ...], unfolded: set[str], by_hand: set[str]) -> tuple[Part, ...]:
        """Unfold the largest modules first, while the map stays readable at a glance."""
        refused: set[str] = set()
        while len(shown) < _ENOUGH:
            alone = [part.paths[0] for part in shown if len(part.paths) == 1]
            left = [path for path in alone if path not in refused and not self._short(path)]
            if not left:
                break
            largest = max(left, key=lambda path: self._branches[path].size)
            most = _ENOUGH_FROZEN if self._branches[largest].frozen(self.info) else _ENOUGH
            before, shown = shown, self._unfold(largest, shown, unfolded, by_hand, most)
            if shown is before:
                refused.add(largest)
        return shown

    def _short(self, path: str) -> bool:
        """Whether a box can say in one line what is in the module: a few plain layers in a row."""
        below = self.children(path)
        plain = path in self.info and self.info[path].kind == "Sequential" and len(below) <= _SHORT
        return plain and not any(self.children(child) for child in below)

    def _frontier(self, unfolded: set[str], by_hand: set[str]) -> tuple[Part, ...]:
        return tuple(part for parent in sorted(unfolded) for part in self._runs(parent, unfolded, by_hand))

    def _runs(self, parent: str, unfolded: set[str], by_hand: set[str]) -> list[Part]:
        """The boxes right below a module: its children, those that are alike together."""
        found: list[Part] = []
        run: list[str] = []
        for child in self.children(parent):
            if run and (child in unfolded or parent in by_hand or not self._alike(run[-1], child)):
                found.append(self._part(run))
                run = []
            if child not in unfolded:
                run.append(child)
        return [*found, self._part(run)] if run else found

    def _part(self, paths: list[str]) -> Part:
        kinds = {self.info[path].kind if path in self.info else "" for path in paths}
        return Part(tuple(paths), kinds.pop() if len(kinds) == 1 else "")

    def _alike(self, one: str, other: str) -> bool:
        """Whether two siblings fold into one box: numbered, of one class, and in the same state."""
        if not (one.rpartition(".")[2].isdigit() and other.rpartition(".")[2].isdigit()):
            return False
        kinds = [self.info[path].kind if path in self.info else "" for path in (one, other)]
        return kinds[0] == kinds[1] and self._branches[one].state == self._branches[other].state

    def _packed(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Too many boxes even when all is folded: put neighbours together, whatever their class."""
        parents = sorted({_parent(part.paths[0]) for part in parts})
        packed: list[Part] = []
        for parent in parents:
            paths = [path for part in parts if _parent(part.paths[0]) == parent for path in part.paths]
            share = -(-len(paths) * len(parents) // _PARTS)
            packed += [self._part(paths[at : at + share]) for at in range(0, len(paths), share)]
        return tuple(packed)


class _Branch:
    """What a module and all below it hold."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.children: list[str] = []
        self.first = self.first_parameter = _LAST
        self.size = 0
        self.parameters: set[str] = set()
        self.flows = False
        self.findings: set[int] = set()

    def add(self, node: Node) -> None:
        self.size += 1
        if node.kind == "parameter":
            self.first_parameter = min(self.first_parameter, node.number)
            self.parameters.add(node.status)
            return
        self.first = min(self.first, node.number)
        self.flows = self.flows or (node.kind == "autograd" and node.status == "live")
        if node.finding is not None:
            self.findings.add(node.finding)

    def join(self, other: _Branch) -> None:
        """Hold what another holds, too."""
        self.size += other.size
        self.first = min(self.first, other.first)
        self.first_parameter = min(self.first_parameter, other.first_parameter)
        self.parameters |= other.parameters
        self.flows = self.flows or other.flows
        self.findings |= other.findings

    @property
    def state(self) -> tuple[frozenset[str], bool, frozenset[int]]:
        return frozenset(self.parameters), self.flows, frozenset(self.findings)

    def frozen(self, info: dict[str, ModuleInfo]) -> bool:
        """Whether nothing below trains, and nothing is cut here: not worth a look inside."""
        if self.findings or self.parameters - {"frozen"}:
            return False
        return bool(self.parameters) or (self.path in info and info[self.path].numel > 0 == info[self.path].trainable)


@functools.lru_cache(maxsize=65536)
def lineage(path: str) -> tuple[str, ...]:
    """A dotted path and all above it, the root ``""`` first.

    Example:
        >>> lineage("h.0.attn")
        ('', 'h', 'h.0', 'h.0.attn')
    """
    found = [path]
    while found[-1]:
        found.append(_parent(found[-1]))
    return tuple(reversed(found))


@functools.lru_cache(maxsize=65536)
def _parent(path: str) -> str:
    """The path above; the very same string for all that lies right below it, so that deep trees stay small."""
    return sys.intern(path.rpartition(".")[0])
