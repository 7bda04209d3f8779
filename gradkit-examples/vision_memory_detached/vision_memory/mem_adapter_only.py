"""MEMModel: a language model whose long-term memory is an image of the text, and of which only ``proj`` is trained.

    text --+-- its end -------------------------> embedding ----------------+
           |                                      (frozen)                  +--> cat, left padding --> base LM --> loss
           +-- all before --> render --> OCR encoder --> proj --> memory ---+                          (frozen)
                              (image)    (frozen)        (trained)

A byte is a token. The weights are random and the sizes small, so that a CPU is enough; ``MEMConfig.reported()`` has
the sizes of the run that this one was made after.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM, SamVisionConfig, SamVisionModel
from transformers.modeling_outputs import CausalLMOutput

from gradkit.core.i18n import words


@dataclass
class MEMConfig:
    """Sizes. The OCR encoder is SAM's image encoder, two convolutions, and blocks as CLIP has them."""

    llm: dict = field(default_factory=lambda: {
        "vocab_size": 256, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    })
    sam: dict = field(default_factory=lambda: {
        "image_size": 64, "patch_size": 4, "hidden_size": 16, "mlp_dim": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "output_channels": 8, "window_size": 8, "global_attn_indexes": [1],
        "initializer_range": 0.2,
    })
    clip_layers: int = 2
    clip_heads: int = 4
    feature: int = 16  # numbers in a feature: the encoder's channels are handed out in pieces of this size
    dropout: float = 0.0  # in the attention of the base LM
    keep: int = 24  # tokens at the end of a text that stay text
    render_from: int = 32  # as many tokens before these are worth an image; fewer are dropped

    @classmethod
    def reported(cls):
        """Qwen3-8B, SAM ViT-B and the body of CLIP ViT-L. Build it on the meta device, or have 32 GB to spare."""
        llm = {
            "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
            "attn_implementation": "eager",  # the others look into the mask, and there is nothing in it on meta
        }
        return cls(llm, sam={}, clip_layers=24, clip_heads=16, feature=512)


def render(tokens, size, glyph):
    """The last tokens as a black-and-white page [3, size, size]: the bits of a byte are the dots of its glyph."""
    columns = size // glyph
    tokens = F.pad(tokens[-columns * columns :], (max(0, columns * columns - len(tokens)), 0))
    bits = (tokens[:, None] >> torch.arange(8)) & 1
    dots = torch.cat([bits, 1 - bits], 1).view(columns, columns, 4, 4)
    page = dots.permute(0, 2, 1, 3).reshape(columns * 4, columns * 4).float()
    return F.interpolate(page[None, None], size=size)[0].expand(3, size, size)


class Block(nn.Module):
    """One block of CLIP's image encoder. [pages, positions, width] -> the same"""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class OCREncoder(nn.Module):
    """Reads a page. [3, size, size] -> features [count, feature]"""

    def __init__(self, config):
        super().__init__()
        sam = SamVisionConfig(**config.sam)
        narrow, width = sam.output_channels, 4 * sam.output_channels
        self.size, self.patch, self.feature = sam.image_size, sam.patch_size, config.feature
        self.sam = SamVisionModel(sam)
        self.shrink = nn.Sequential(
            nn.Conv2d(narrow, 2 * narrow, 3, stride=2, padding=1, bias=False),
            nn.Conv2d(2 * narrow, width, 3, stride=2, padding=1, bias=False),
        )
        self.norm = nn.LayerNorm(width)
        self.clip = nn.Sequential(*(Block(width, config.clip_heads) for _ in range(config.clip_layers)))

    def forward(self, page):
        places = self.shrink(self.sam(page[None]).last_hidden_state)
        seen = self.clip(self.norm(places.flatten(2).transpose(1, 2)))
        return seen.reshape(-1, self.feature)


class PageStore:
    """Keeps what was read off every page, for answering questions about it later."""

    def __init__(self):
        self.pages = {}

    def put(self, key, memory):
        self.pages[key] = memory.detach()
        return memory


class MEMModel(nn.Module):
    """As the report tells it: no_grad round the encoder, constant padding, and eval() on whatever is frozen."""

    def __init__(self, config, store):
        super().__init__()
        llm = Qwen3Config(
            **config.llm, attention_dropout=config.dropout, bos_token_id=None, eos_token_id=None, pad_token_id=None
        )
        self.config, self.store, self.hidden = config, store, llm.hidden_size
        self.base_llm_model = Qwen3ForCausalLM(llm)
        self.ocr_embed = OCREncoder(config)
        self.requires_grad_(False)
        self.proj = nn.Sequential(
            nn.Linear(config.feature, self.hidden), nn.GELU(), nn.Linear(self.hidden, self.hidden)
        )

    @property
    def device(self):
        return self.base_llm_model.device

    def train(self, mode=True):
        super().train(mode)
        self.base_llm_model.eval()
        self.ocr_embed.eval()
        return self

    def read(self, page):
        with torch.no_grad():
            return self.ocr_embed(page)

    def memory(self, old):
        """What came before, as [count, hidden]."""
        page = render(old, self.ocr_embed.size, self.ocr_embed.patch)
        features = self.read(page.to(self.device))
        return self.store.put(bytes(old.tolist()), self.proj(features))

    def embed(self, tokens):
        """One text as embeddings: the memory of its beginning, then its end."""
        old, recent = tokens[: -self.config.keep], tokens[-self.config.keep :].to(self.device)
        embeds = self.base_llm_model.get_input_embeddings()(recent)
        if len(old) >= self.config.render_from:
            embeds = torch.cat([self.memory(old), embeds])
        return embeds, recent

    def left_pad(self, embeds, length):
        pad = torch.zeros(length - len(embeds), self.hidden, device=self.device, requires_grad=False)
        return torch.cat([pad, embeds])

    def predict(self, embeds, attends):
        return self.base_llm_model(inputs_embeds=embeds, attention_mask=attends, use_cache=False).logits

    def forward(self, texts):
        """A list of int64 tensors [length] -> the loss of predicting the end of each, and the logits."""
        rows = [self.embed(tokens) for tokens in texts]
        length = max(len(embeds) for embeds, _ in rows)
        embeds = torch.stack([self.left_pad(row, length) for row, _ in rows])
        attends = torch.stack([torch.arange(length) >= length - len(row) for row, _ in rows]).to(self.device)
        labels = torch.stack([F.pad(recent, (length - len(recent), 0), value=-100) for _, recent in rows])
        logits = self.predict(embeds, attends)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return CausalLMOutput(loss=loss, logits=logits)

    def print_trainable_parameters(self):
        """One line in the form that peft made customary, then part by part."""
        count = sum(p.numel() for p in self.parameters())
        trained = trainable(self)
        percent = f"{100 * trained / count:.4f}"
        print(words("case.trainable", trained=f"{trained:,}", count=f"{count:,}", percent=percent))
        print(f"\n{words('case.breakdown')}")
        for name, part in self.named_children():
            frozen = name != "proj"
            size = f"{trainable(part):,}"
            print(words("case.part_frozen" if frozen else "case.part", name=name, size=size))
            if frozen and trainable(part):
                print(words("case.not_frozen", name=name, size=size))
        if not trainable(self.proj):
            print(words("case.not_trained"))


def trainable(module):
    """How many numbers of a module may be trained."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
