"""A batch of random numbers that was proposed is tried on the model, and corrected until its forward pass runs.

What a layer says of its input, and what the error says of shapes and dtypes, leads from one line to the next; the
model is as it was before, whatever is tried. With a loss, labels are added that it takes.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module

from gradkit.core import introspection
from gradkit.load import labels, synthetic
from gradkit.load.call import ModelCall
from gradkit.load.failures import cause_of, frames_of
from gradkit.load.synthetic import Entry, line_of
from gradkit.state.preserve import Preserved

MOST, SECONDS = 60, 20.0
_SIZES = (32, 28, 64, 224, 96, 128, 48, 256, 16, 299, 384, 512, 8)
_HINTS = re.compile(r"(image|img|input|block|context|seq|max)_?(size|len|length|seq_len|positions)?$", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![A-Za-wyz_\d.])\d+")  # not the 1 of mat1, but both of 4x16
_FLOATS = ("float32", "float16", "bfloat16", "float64")

Entries = tuple[Entry, ...]


@dataclass(frozen=True)
class Tried:
    """A line that describes a batch, and whether the model takes it.

    Attributes:
        line: the line.
        error: what the model, or the loss, said to the first proposal; ``""`` if it takes the line.
    """

    line: str
    error: str = ""


Guard = Callable[[Callable[[], object]], Callable[[], object]]


def corrected(
    model: nn.Module,
    line: str,
    loss: Callable[..., Any] | None = None,
    folder: str = "",
    *,
    guard: Guard = lambda call: call,
) -> Tried:
    """The line, corrected until the model takes it, and the loss, if there is one.

    Args:
        model: it is run as it is, some ``MOST`` times at most, and put back.
        line: what :func:`gradkit.load.synthetic.propose` gave.
        loss: what is called on the output; None asks for no more than a forward pass.
        folder: where the user's file lies, for imports that its code makes late.
        guard: put around each run of the user's code, for who may interrupt it.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 4, 5), nn.Flatten(), nn.Linear(4 * 24 * 24, 10))
        >>> corrected(net, "float32[4, 3, 32, 32]", nn.CrossEntropyLoss()).line
        'float32[4, 3, 28, 28]; int64[4]<10'
    """
    trial = _Trial(model, loss, folder, guard)
    return Preserved(model, loss).during(lambda: trial.search(synthetic.parse(line)))


class _Trial:
    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None, folder: str, guard: Guard) -> None:
        self.model, self.loss, self.folder, self.guard = model, loss, folder, guard
        self._left, self._end = MOST, time.monotonic() + SECONDS
        self._output: Any = None
        self._passed = 0  # modules that the last try got through

    def search(self, first: Entries) -> Tried:
        """Try one line after the other; what comes of the line that got farthest goes first."""
        order = itertools.count()
        waiting, seen, said = [(0, next(order), first)], {first}, ""
        while waiting and self._goes_on():
            entries = heapq.heappop(waiting)[2]
            error, given = self._forward(entries)
            if error is None:
                return self._with_labels(entries)
            said = said or cause_of(error)
            for one in _corrections(self.model, entries, error, given):
                if one not in seen:
                    seen.add(one)
                    heapq.heappush(waiting, (-self._passed, next(order), one))
        return Tried(line_of(first), said or "-")

    def _with_labels(self, entries: Entries) -> Tried:
        if self.loss is None:
            return Tried(line_of(entries))
        said = ""
        for batch in labels.candidates(entries, self._output, self.loss, self.model):
            if not self._goes_on():
                break
            error = self._whole(batch)
            if error is None:
                return Tried(line_of(batch))
            said = said or cause_of(error)
        return Tried(line_of(entries), said or "-")

    def _goes_on(self) -> bool:
        self._left -= 1
        return self._left >= 0 and time.monotonic() < self._end

    def _forward(self, entries: Entries) -> tuple[Exception | None, list[torch.Tensor]]:
        """What the forward pass raised, and the tensors that it was given."""
        batch = self._made(entries)
        given = list(batch.values()) if isinstance(batch, dict) else list(batch) if len(entries) > 1 else [batch]
        self._passed, count = 0, module.register_module_forward_hook(self._count)
        try:
            return self._heard(ModelCall(self.model, batch, self._keep, self.folder)), given
        finally:
            count.remove()

    def _count(self, *_: Any) -> None:
        self._passed += 1

    def _keep(self, output: Any) -> float:
        self._output = output
        return 0.0

    def _whole(self, entries: Entries) -> Exception | None:
        call = ModelCall(self.model, self._made(entries), self.loss, self.folder)
        return self._heard(call)

    def _made(self, entries: Entries) -> Any:
        device = next((one.device for one in self.model.parameters()), torch.device("cpu"))
        return synthetic.make(entries, device)

    def _heard(self, call: Callable[[], object]) -> Exception | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.filterwarnings("error", message=r".*\btarget size\b")  # shapes that only happen to broadcast
                self.guard(call)()
        except Exception as error:  # noqa: BLE001  # whatever the user's code raises leads to the next line
            return error
        return None


# -- from an error to other lines -------------------------------------------------------------------------------------


def _corrections(model: nn.Module, entries: Entries, error: Exception, given: list[torch.Tensor]) -> Iterator[Entries]:
    """Lines to be tried in place of one that failed, the likeliest first."""
    said = introspection.text(error)
    layer, met = _failing_layer(error)
    at = next((number for number, one in enumerate(given) if met is not None and _is_view(met, one)), -1)
    if at < 0:
        yield from _of_pictures(model, entries)
    for number in range(len(entries)) if at < 0 else [at]:
        for one in _of_entry(entries[number], said, layer if number == at else None):
            yield _with(entries, number, one)
    if at >= 0:
        yield from _of_pictures(model, entries)


def _of_pictures(model: nn.Module, entries: Entries) -> Iterator[Entries]:
    """The same with other heights and widths."""
    for number, one in enumerate(entries):
        if len(one.shape) >= 3 and one.dtype in _FLOATS:
            for size in dict.fromkeys((*_hinted(model), *_SIZES)):
                yield _with(entries, number, replace(one, shape=(*one.shape[:2], *([size] * (len(one.shape) - 2)))))


def _with(entries: Entries, number: int, one: Entry) -> Entries:
    return (*entries[:number], one, *entries[number + 1 :])


def _of_entry(entry: Entry, said: str, layer: nn.Module | None) -> Iterator[Entry]:
    """Other forms of one entry, by the layer that did not take it and by the words of the error."""
    if layer is not None and (wanted := synthetic.form(layer)) is not None:
        yield replace(wanted, name=entry.name)
    if isinstance(layer, nn.Embedding):
        yield replace(entry, dtype="int64", below=layer.num_embeddings)
    yield from _of_dtype(entry, said)
    yield from _of_rank(entry, said)
    yield from _of_numbers(entry, said)
    if "index out of range" in said and "int" in entry.dtype:
        for length in (8, 4, 2):
            if len(entry.shape) > 1 and length < entry.shape[1]:
                yield replace(entry, shape=(entry.shape[0], length, *entry.shape[2:]))
        yield replace(entry, below=max(entry.below // 2, 2))


def _of_numbers(entry: Entry, said: str) -> Iterator[Entry]:
    """A size that the error names, replaced by another that it names: ``(4x16 and 7x16)``."""
    numbers = [int(one) for one in _NUMBER.findall(said)][:8]
    for at, size in list(enumerate(entry.shape))[:0:-1]:
        for other in dict.fromkeys(numbers):
            if size in numbers and other != size and 0 < other < 10_000:
                yield replace(entry, shape=(*entry.shape[:at], other, *entry.shape[at + 1 :]))


def _of_dtype(entry: Entry, said: str) -> Iterator[Entry]:
    low = said.lower()
    for name in _FLOATS:
        torchs = {"float32": "float", "float16": "half", "bfloat16": "bfloat16", "float64": "double"}[name]
        if name != entry.dtype and re.search(rf"\b(c10::)?({torchs})\b", low):
            yield replace(entry, dtype=name)
    if entry.dtype in _FLOATS and re.search(r"\b(long|int|int64|indices|one_hot|index tensor)\b", low):
        shape = entry.shape[:2] if len(entry.shape) > 1 else entry.shape
        for below in (10, 2):
            yield replace(entry, dtype="int64", below=below)
            yield replace(entry, dtype="int64", shape=shape, below=below)


def _of_rank(entry: Entry, said: str) -> Iterator[Entry]:
    """Another number of sizes: what an unpacking, a ``permute`` or a layer asks for."""
    low, last = said.lower(), entry.shape[-1] if entry.shape else 1
    asked = [*re.findall(r"expected (?:at least )?(\d)\b", low), *re.findall(r"(\d)-?d\b", low)]
    asked += re.findall(r"dims\) of length|ordering of dimensions.*?is not equal to (\d)", low)
    rows = entry.shape[0] if entry.shape else 4
    wanted = [int(one) for one in asked if one] + ([3] if "dimension out of range" in low else [])
    for rank in dict.fromkeys(one for one in wanted if 1 <= one <= 5 and one != len(entry.shape)):
        for channels in (3, 1) if rank >= 4 else ():
            yield replace(entry, shape=(rows, channels, *([32] * (rank - 2))), dtype="float32")
        yield replace(entry, shape=(rows, *([8] * (rank - 2)), last)[:rank])


def _failing_layer(error: BaseException) -> tuple[nn.Module | None, torch.Tensor | None]:
    """The innermost layer of torch's that an error came out of, and the tensor that it was given."""
    found: tuple[nn.Module | None, torch.Tensor | None] = (None, None)
    for frame, _ in frames_of(error):
        layer, given = frame.f_locals.get("self"), frame.f_locals.get("input")
        if introspection.is_a(layer, nn.Module) and introspection.is_a(given, torch.Tensor):
            found = layer, given
    return found


def _is_view(one: torch.Tensor, other: torch.Tensor) -> bool:
    with contextlib.suppress(RuntimeError):
        return one.data_ptr() == other.data_ptr() and one.numel() == other.numel()
    return False


def _hinted(model: nn.Module) -> list[int]:
    """Sizes that the model itself names: ``self.image_size = 48``."""
    found = []
    for part in model.modules():
        for name, value in list(vars(part).items()):
            size = value[0] if isinstance(value, (tuple, list)) and value else value
            if _HINTS.search(name) and type(size) is int and 0 < size < 2048:
                found.append(size)
    return found
