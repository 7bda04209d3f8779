"""Train a vision memory: old text is kept as an image of itself, and read back through one trainable projection.

    python -m gradkit.cases.vision_memory --program never_called    no text is long enough to be rendered
    python -m gradkit.cases.vision_memory --program detached        the pages that were read lose their gradient
    python -m gradkit.cases.vision_memory --program fixed           trains

The language model and the page encoder are frozen. Random weights, a byte is a token, a CPU is enough.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, HIDDEN, HEADS, VISION = 256, 48, 4, 32
COLUMNS, ROWS, GLYPH = 16, 4, 4  # a page: ROWS lines of COLUMNS glyphs, each GLYPH x GLYPH pixels
KEEP = 24  # tokens at the end of a text that stay text
NOTES = [
    "Low water at 05:40. The big anemone has moved half a hand to the left since Tuesday, two shrimps with it.",
    "Low water at 06:31. Nineteen limpets on the north wall, all on their rings. The one with the notch came last.",
]
SHORT_NOTES = ["Fog. Nothing seen.", "Low water at 07:24."]


class LanguageModel(nn.Module):
    """A causal transformer that takes embeddings. [batch, length, HIDDEN] -> logits [batch, length, VOCABULARY]"""

    def __init__(self, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        layer = nn.TransformerEncoderLayer(HIDDEN, HEADS, 2 * HIDDEN, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, embeds, attends):
        length = embeds.shape[1]
        blocked = torch.ones(length, length, dtype=torch.bool).triu(1) | ~attends[:, None, :]
        blocked = blocked & ~torch.eye(length, dtype=torch.bool)  # padding may look at itself: no row is all blocked
        return self.head(self.layers(embeds, blocked.repeat_interleave(HEADS, dim=0)))


class PageEncoder(nn.Module):
    """Reads a page, one feature a line. [1, height, width] -> [ROWS, VISION]"""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, VISION, (GLYPH, COLUMNS * GLYPH), stride=GLYPH)
        self.norm = nn.BatchNorm1d(VISION)

    def forward(self, page):
        lines = self.patches(page[None]).flatten(2)[0].T
        return self.norm(F.gelu(lines))


class PageStore:
    """Keeps what was read from every page, for answering questions about it later."""

    def __init__(self):
        self.pages = {}

    def put(self, key, tokens):
        self.pages[key] = tokens.detach()
        return self.pages[key]


class TrainingPageStore(PageStore):
    """The store keeps a detached copy; the caller goes on with the live one."""

    def put(self, key, tokens):
        super().put(key, tokens)
        return tokens


def render(tokens):
    """Byte tokens as a black-and-white page: the bits of a byte are the pixels of its glyph."""
    tokens = F.pad(tokens[-ROWS * COLUMNS :], (max(0, ROWS * COLUMNS - len(tokens)), 0))
    bits = (tokens[:, None] >> torch.arange(8)) & 1
    glyphs = torch.cat([bits, 1 - bits], 1).view(ROWS, COLUMNS, GLYPH, GLYPH)
    return glyphs.permute(0, 2, 1, 3).reshape(1, ROWS * GLYPH, COLUMNS * GLYPH).float()


class VisionMemory(nn.Module):
    """The end of a text as tokens, what came before it as a few vectors read off its image."""

    def __init__(self, store, render_from):
        super().__init__()
        self.base_llm = LanguageModel()
        self.ocr_embed = PageEncoder()
        self.requires_grad_(False)
        self.proj = nn.Linear(VISION, HIDDEN)
        self.store = store
        self.render_from = render_from

    def train(self, mode=True):
        super().train(mode)
        self.base_llm.eval()
        self.ocr_embed.eval()
        return self

    def read_page(self, old):
        page = render(old)
        with torch.no_grad():
            features = self.ocr_embed(page)
        return self.store.put(bytes(old.tolist()), self.proj(features))

    def embed_one(self, tokens):
        """One text as embeddings: the memory of its beginning, then its end."""
        old, recent = tokens[:-KEEP], tokens[-KEEP:]
        embeds = self.base_llm.embed(recent)
        if len(old) >= self.render_from:
            embeds = torch.cat([self.read_page(old), embeds])
        return embeds, recent

    def forward(self, texts):
        rows = [self.embed_one(tokens) for tokens in texts]
        length = max(len(embeds) for embeds, _ in rows)
        embeds, attends, labels = [], [], []
        for row, recent in rows:
            missing = length - len(row)
            pad = torch.zeros(missing, HIDDEN, requires_grad=False)
            embeds.append(torch.cat([pad, row]))
            attends.append(torch.arange(length) >= missing)
            labels.append(F.pad(recent, (length - len(recent), 0), value=-100))
        logits = self.base_llm(torch.stack(embeds), torch.stack(attends))
        labels = torch.stack(labels)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)

    def print_trainable_parameters(self):
        count = sum(p.numel() for p in self.parameters())
        train = sum(p.numel() for p in self.parameters() if p.requires_grad)
        print(f"trainable params: {train:,} || all params: {count:,} || trainable%: {100 * train / count:.4f}")


def tokenize(texts):
    return [torch.tensor(list(text.encode())) for text in texts]


def build(notes, store, render_from=ROWS * COLUMNS // 2):
    """A model with the same random weights every time, and a step on these notes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = VisionMemory(store, render_from).train()
    batch = tokenize(notes)

    def step():
        return model(batch)

    return model, step


def make_never_called():
    return build(SHORT_NOTES, TrainingPageStore())


def make_never_called_fixed():
    """A batch in which something is long enough to be rendered."""
    return build(SHORT_NOTES + NOTES[:1], TrainingPageStore())


def make_detached():
    return build(NOTES, PageStore())


def make_fixed():
    return build(NOTES, TrainingPageStore())


PROGRAMS = {"never_called": make_never_called, "detached": make_detached, "fixed": make_fixed}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m gradkit.cases.vision_memory", description=__doc__.splitlines()[0])
    parser.add_argument("--program", choices=PROGRAMS, default="never_called")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=1e-2)
    args = parser.parse_args(arguments)

    torch.manual_seed(0)
    model, step = PROGRAMS[args.program]()
    model.print_trainable_parameters()
    optimizer = torch.optim.AdamW(model.proj.parameters(), lr=args.learning_rate)
    for number in range(args.steps):
        loss = step()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {number + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
