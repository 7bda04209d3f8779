"""Who feeds whom, while boxes are folded: links that can be bridged, joined and thinned out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from gradkit.records import Picture

Key = tuple[str | int, ...]
"""Names a future box; its first entry is the box's kind."""

_STRENGTH = {"dead": 0, "cut": 1, "live": 2}


class Wiring:
    """A directed graph of keys. Every link carries the status of the edges that it stands for.

    Example:
        >>> wires = Wiring([(("a",), ("b",), "live"), (("b",), ("c",), "dead")])
        >>> wires.bridge(("b",))
        >>> wires.links()
        [(('a',), ('c',), 'dead')]
    """

    def __init__(self, links: Iterable[tuple[Key, Key, str]]) -> None:
        self._after: dict[Key, dict[Key, str]] = {}
        self._before: dict[Key, dict[Key, str]] = {}
        for tail, head, status in links:
            self._link(tail, head, status)

    def links(self) -> list[tuple[Key, Key, str]]:
        """All links as (tail, head, status)."""
        return [(tail, head, status) for tail, heads in self._after.items() for head, status in heads.items()]

    def feeds(self, key: Key) -> set[Key]:
        """The keys that ``key`` takes its data from."""
        return set(self._before.get(key, ()))

    def fed(self, key: Key) -> set[Key]:
        """The keys that take data from ``key``."""
        return set(self._after.get(key, ()))

    def feeds_only(self, tail: Key, head: Key) -> bool:
        """Whether ``head`` is all that takes data from ``tail``."""
        after = self._after.get(tail, {})
        return len(after) == 1 and head in after

    def upstream(self, keys: Iterable[Key]) -> set[Key]:
        """All keys from which data flows into one of ``keys``, over any number of links."""
        seen: set[Key] = set()
        queue = deque(keys)
        while queue:
            for feed in self._before.get(queue.popleft(), ()):
                if feed not in seen:
                    seen.add(feed)
                    queue.append(feed)
        return seen

    def ranks(self) -> dict[Key, int]:
        """A number for every key that grows along the links; keys on one ring share theirs.

        Example:
            >>> ranks = Wiring([(("a",), ("b",), "live"), (("b",), ("a",), "dead"), (("b",), ("c",), "live")]).ranks()
            >>> ranks[("a",)] == ranks[("b",)] < ranks[("c",)]
            True
        """
        left: list[Key] = []
        seen: set[Key] = set()
        for start in [*self._after, *self._before]:
            left += _leaving(start, self._after, seen)
        rank: dict[Key, int] = {}
        ranked: set[Key] = set()
        for number, start in enumerate(reversed(left)):
            rank.update(dict.fromkeys(_leaving(start, self._before, ranked), number))
        return rank

    def come_into(self, keys: Iterable[Key], key: Key, ranks: Mapping[Key, int]) -> bool:
        """Whether data flows from each of ``keys`` into ``key``, over any number of links.

        Args:
            ranks: as ``ranks`` gave them; what has been taken out since does not matter. Nothing below is searched.
        """
        missing = set(keys) - self._before.get(key, {}).keys()
        least = min((ranks[one] for one in missing), default=0)
        seen, todo = {key}, [key]
        while todo and missing:
            new = [one for one in self._before.get(todo.pop(), ()) if ranks[one] >= least and one not in seen]
            seen.update(new)
            missing.difference_update(new)
            todo += new
        return not missing

    def bridge(self, key: Key) -> None:
        """Take a key out and link what fed it with what it fed."""
        before, after = self._before.pop(key, {}), self._after.pop(key, {})
        for tail in before:
            self._after[tail].pop(key)
        for head in after:
            self._before[head].pop(key)
        for tail, first in before.items():
            for head, second in after.items():
                self._link(tail, head, min(first, second, key=_strength_of_a_way))

    def join(self, key: Key, into: Key) -> None:
        """Let ``into`` take over all links of ``key``."""
        before, after = self._before.pop(key, {}), self._after.pop(key, {})
        for tail, status in before.items():
            self._after[tail].pop(key)
            self._link(tail, into, status)
        for head, status in after.items():
            self._before[head].pop(key)
            self._link(into, head, status)

    def thin(self) -> None:
        """Drop every link that only repeats a longer way: of live links for a live one, of any for a dead one."""
        for tail, head, status in self.links():
            if status != "cut" and self._another_way(tail, head, live=status == "live"):
                self.drop(tail, head)

    def drop(self, tail: Key, head: Key) -> None:
        """Remove one link."""
        self._after[tail].pop(head)
        self._before[head].pop(tail)

    def _link(self, tail: Key, head: Key, status: str) -> None:
        if tail == head:
            return
        present = self._after.setdefault(tail, {}).get(head, status)
        best = max(present, status, key=_STRENGTH.__getitem__)
        self._after[tail][head] = best
        self._before.setdefault(head, {})[tail] = best

    def _another_way(self, tail: Key, head: Key, *, live: bool) -> bool:
        def steps(key: Key) -> list[Key]:
            return [to for to, status in self._after.get(key, {}).items() if status == "live" or not live]

        queue = deque(key for key in steps(tail) if key != head)
        seen = {tail, *queue}
        while queue:
            for key in steps(queue.popleft()):
                if key == head:
                    return True
                if key not in seen:
                    seen.add(key)
                    queue.append(key)
        return False


def _leaving(start: Key, links: Mapping[Key, Mapping[Key, str]], seen: set[Key]) -> list[Key]:
    """The keys that a walk in depth reaches first, in the order in which it leaves them for good."""
    if start in seen:
        return []
    seen.add(start)
    left, path = [], [(start, iter(links.get(start, ())))]
    while path:
        key, ahead = path[-1]
        new = next((one for one in ahead if one not in seen), None)
        if new is None:
            left.append(key)
            path.pop()
        else:
            seen.add(new)
            path.append((new, iter(links.get(new, ()))))
    return left


def _strength_of_a_way(status: str) -> int:
    return {"cut": 0, "dead": 1, "live": 2}[status]


def above(picture: Picture, numbers: Iterable[int]) -> list[frozenset[int]]:
    """For each node, the numbers of all nodes that its value was made from.

    Example:
        >>> from gradkit.records import Edge
        >>> edges = Edge(1, 2, "live"), Edge(2, 3, "live"), Edge(4, 5, "live")
        >>> [sorted(found) for found in above(Picture((), edges, (), ()), [3, 5])]
        [[1, 2], [4]]
    """
    wires = Wiring(((edge.source,), (edge.target,), edge.status) for edge in picture.edges)
    return [frozenset(int(key[0]) for key in wires.upstream([(number,)])) for number in numbers]
