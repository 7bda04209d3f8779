"""A batch of random numbers from one line of text, and the line that a model's forward and config suggest.

The line: ``input_ids=int64[2, 16]<100; labels=int64[2]<5; pixel_values=float32[2, 3, 32, 32]``. Entries with names
make a dict, several without names a tuple, one without a name a tensor. Floats are drawn from a normal distribution,
whole numbers evenly from 0 to below the number after ``<`` (2 where there is none), bool is all True.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradkit.core.errors import GradkitError
from gradkit.load import memory
from gradkit.load.signatures import accepts

ROWS, STEPS, PIXELS, SAMPLES = 2, 16, 32, 4000
_ENTRY = re.compile(
    r"(?:(?P<name>[^\W\d]\w*)\s*=\s*)?(?P<dtype>[a-z]+\d*)\s*\[(?P<shape>[\d\s,]*)\](?:\s*<\s*(?P<below>\d+))?"
)
_DTYPES = {
    name: getattr(torch, name)
    for name in "float16 bfloat16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 bool".split()
}
_LIKE_ONE = re.compile(rf"(?:[^\W\d]\w*\s*=\s*)?(?:{'|'.join(_DTYPES)})\s*\[[^\[\]]*\](?:\s*<.*)?")
_LARGEST = 2**63 - 1
_MASKS = re.compile(r"mask", re.I)
_TARGETS = re.compile(r"labels?$|targets?$|^y$|^y_true$", re.I)


@dataclass(frozen=True)
class Entry:
    """One tensor to be made.

    Attributes:
        name: its key, ``""`` for none.
        dtype: for example ``"float32"``.
        shape: its shape.
        below: whole numbers are drawn from 0 to below this.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    below: int = 2

    def __str__(self) -> str:
        below = f"<{self.below}" if "int" in self.dtype else ""
        return f"{self.name}{'=' if self.name else ''}{self.dtype}{list(self.shape)}{below}"


def is_line(text: str) -> bool:
    """Whether a text describes a batch, be it with a mistake in the sizes, rather than naming a file or a function.

    Example:
        >>> is_line("x=float32[4, 3]"), is_line("train.py:make_batch"), is_line("batch.pt")
        (True, False, False)
    """
    first = text.split(";", maxsplit=1)[0].strip()
    return _ENTRY.fullmatch(first) is not None or _LIKE_ONE.fullmatch(first) is not None


def parse(text: str) -> tuple[Entry, ...]:
    """The entries that a line describes.

    Raises:
        GradkitError: a part of it is no such entry, or names no dtype of torch (``bad_batch_line``); a number that
            the dtype cannot hold (``batch_below``).

    Example:
        >>> parse("x=float32[4, 3]; y=int64[4]<5")
        (Entry(name='x', dtype='float32', shape=(4, 3), below=2), Entry(name='y', dtype='int64', shape=(4,), below=5))
    """
    found = []
    for part in filter(None, (one.strip() for one in text.split(";"))):
        match = _ENTRY.fullmatch(part)
        if match is None or match["dtype"] not in _DTYPES:
            raise GradkitError("bad_batch_line", part=_short(part))
        found.append(_entry(match))
    if len({bool(one.name) for one in found}) > 1:
        raise GradkitError("bad_batch_line", part=_short(text))
    return tuple(found)


def line_of(entries: Iterable[Entry]) -> str:
    """The line that describes entries.

    Example:
        >>> line_of(parse("x = float32[4,3];y=int64[4]<5"))
        'x=float32[4, 3]; y=int64[4]<5'
    """
    return "; ".join(map(str, entries))


def _entry(match: re.Match[str]) -> Entry:
    dtype = match["dtype"]
    try:
        shape = tuple(int(size) for size in match["shape"].replace(",", " ").split())
        below = int(match["below"] or 2)
    except ValueError as error:  # thousands of digits
        raise GradkitError("bad_batch_line", part=_short(match[0])) from error
    if max(shape, default=0) > _LARGEST:
        raise GradkitError("bad_batch_line", part=_short(match[0]))
    if "int" in dtype and below - 1 > torch.iinfo(_DTYPES[dtype]).max:
        raise GradkitError("batch_below", part=_short(match[0]), dtype=dtype, most=torch.iinfo(_DTYPES[dtype]).max)
    return Entry(match["name"] or "", dtype, shape, below)


def make(entries: tuple[Entry, ...], device: torch.device | str = "cpu") -> Any:
    """The batch: a dict, a tuple or a tensor. The same line gives the same numbers; the global seed is left alone.

    Raises:
        GradkitError: there is not that much memory (``batch_too_large``).

    Example:
        >>> make(parse("ids=int64[2, 3]<7"))["ids"].shape
        torch.Size([2, 3])
    """
    source = torch.Generator().manual_seed(0)
    size = sum(math.prod(one.shape) * _widest(one) for one in entries)
    try:
        if size > memory.free_memory():
            raise MemoryError
        tensors = [_tensor(one, source).to(device) for one in entries]
    except (MemoryError, RuntimeError) as error:  # RuntimeError: what torch raises, on the CPU and on a GPU
        line = _short(line_of(entries))
        needs, free = memory.size_shown(size), memory.size_shown(memory.free_memory())
        raise GradkitError("batch_too_large", line=line, size=needs, free=free) from error
    if entries and entries[0].name:
        return {one.name: tensor for one, tensor in zip(entries, tensors, strict=True)}
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def _widest(entry: Entry) -> int:
    """Bytes of one number, in the dtype that it is drawn in or in its own."""
    dtype: torch.dtype = _DTYPES[entry.dtype]
    drawn = 1 if dtype is torch.bool else 4 if dtype.is_floating_point else 8
    return max(drawn, dtype.itemsize)


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"


def _tensor(entry: Entry, source: torch.Generator) -> torch.Tensor:
    dtype = _DTYPES[entry.dtype]
    if dtype is torch.bool or (_MASKS.search(entry.name) and "int" in entry.dtype):
        return torch.ones(entry.shape, dtype=dtype)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(entry.shape, generator=source, dtype=wide).to(dtype)
    return torch.randint(0, max(entry.below, 1), entry.shape, generator=source).to(dtype)


def propose(model: nn.Module) -> str:
    """The line that a model's forward and config suggest; ``""`` where they say too little. Nothing is run.

    Example:
        >>> propose(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)))
        'float32[4, 5]'
    """
    config = getattr(model, "config", None)
    main = str(getattr(model, "main_input_name", "") or "")
    entries = list(_of_config(model, config, main)) if main and config is not None else list(_of_layers(model))
    return line_of(entries)


# -- models with a config -------------------------------------------------------------------------------------------


def _of_config(model: nn.Module, config: Any, main: str) -> Iterator[Entry]:
    takes = accepts(model).names
    text = getattr(config, "text_config", None) or config
    vocabulary = int(getattr(text, "vocab_size", 0) or 100)
    for name in dict.fromkeys((main, *takes)):
        if name == main or name in ("input_ids", "pixel_values", "decoder_input_ids", "labels", "attention_mask"):
            entry = _named(name, config, vocabulary, type(model).__name__, takes)
            if entry is not None:
                yield entry


def _named(name: str, config: Any, vocabulary: int, kind: str, takes: tuple[str, ...]) -> Entry | None:
    if name == "input_ids":
        return Entry(name, "int64", (ROWS, STEPS), vocabulary)
    if name == "attention_mask":
        return Entry(name, "int64", (ROWS, STEPS), 2) if "input_ids" in takes else None
    if name == "decoder_input_ids":
        wanted = "labels" not in takes and bool(getattr(config, "is_encoder_decoder", False))
        return Entry(name, "int64", (ROWS, STEPS), vocabulary) if wanted else None
    if name == "pixel_values":
        return _pixels(config)
    if name == "input_features":
        mels = int(getattr(config, "num_mel_bins", 80))
        return Entry(name, "float32", (ROWS, mels, 2 * int(getattr(config, "max_source_positions", 50))))
    if name == "input_values":
        return Entry(name, "float32", (ROWS, SAMPLES))
    if name == "labels":
        return _labels(config, vocabulary, kind)
    return None


def _pixels(config: Any) -> Entry:
    vision = getattr(config, "vision_config", None) or config
    size = getattr(vision, "image_size", PIXELS) or PIXELS
    height, width = (size if isinstance(size, (list, tuple)) else (size, size))[:2]
    return Entry("pixel_values", "float32", (ROWS, int(getattr(vision, "num_channels", 3) or 3), height, width))


def _labels(config: Any, vocabulary: int, kind: str) -> Entry:
    classes = int(getattr(config, "num_labels", 2) or 2)
    if kind.endswith("ForTokenClassification"):
        return Entry("labels", "int64", (ROWS, STEPS), classes)
    if kind.endswith(("Classification", "ForMultipleChoice")):
        return Entry("labels", "float32" if classes == 1 else "int64", (ROWS,), classes)
    return Entry("labels", "int64", (ROWS, STEPS), vocabulary)


# -- any other module -----------------------------------------------------------------------------------------------


def _of_layers(model: nn.Module) -> Iterator[Entry]:
    """From the first layer whose input has a known form, and the last one's outputs."""
    layers = [one for one in model.modules() if form(one) is not None]
    forward = accepts(model)
    names = forward.required or forward.positional[:1]
    if not layers or not names:
        return
    first = form(layers[0])
    assert first is not None
    classes = next((m.out_features for m in reversed(layers) if isinstance(m, nn.Linear)), 2)
    for name in names:
        shown = name if len(names) > 1 else ""
        if _TARGETS.search(name):
            yield Entry(shown, "int64", first.shape[:1], classes)
        elif _MASKS.search(name):
            yield Entry(shown, "bool", first.shape[:2])
        else:
            yield Entry(shown, first.dtype, first.shape, first.below)


def form(layer: nn.Module) -> Entry | None:
    """What a layer takes, if it tells.

    Example:
        >>> print(form(nn.Embedding(100, 8)), form(nn.ReLU()))
        int64[4, 8]<100 None
    """
    rows = 4
    if isinstance(layer, nn.Linear):
        return Entry("", "float32", (rows, layer.in_features))
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        return Entry("", "int64", (rows, 8), layer.num_embeddings)
    if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
        steps = (rows, 8) if isinstance(layer, nn.RNNBase) else (rows,)
        return Entry("", "float32", (*steps, layer.input_size))
    if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return Entry("", "float32", (rows, layer.in_channels, *([PIXELS] * len(layer.kernel_size))))
    if isinstance(layer, nn.MultiheadAttention):
        return Entry("", "float32", (rows, 8, layer.embed_dim))
    return None
