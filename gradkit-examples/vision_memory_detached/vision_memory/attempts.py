"""The three attempts, one on top of the other; and two kinds of line that look the same and do cut.

Every class changes one method of MEMModel, or of the store beside it.
"""

import torch

from vision_memory.mem_adapter_only import MEMModel, PageStore, render


class Attempt1(MEMModel):
    """The frozen encoder is run without no_grad."""

    def read(self, page):
        return self.ocr_embed(page)


class Attempt2(Attempt1):
    """And the padding is made without requires_grad=False."""

    def left_pad(self, embeds, length):
        pad = torch.zeros(length - len(embeds), self.hidden, device=self.device)
        return torch.cat([pad, embeds])


class Attempt3(Attempt2):
    """And train() reaches the frozen parts, too."""

    def train(self, mode=True):
        return super(MEMModel, self).train(mode)


ATTEMPTS = (MEMModel, Attempt1, Attempt2, Attempt3)  # by number; 0 is what was reported


class NoGradTooWide(MEMModel):
    """The no_grad that is harmless round the encoder, with one more line inside it."""

    def memory(self, old):
        page = render(old, self.ocr_embed.size, self.ocr_embed.patch)
        with torch.no_grad():
            features = self.ocr_embed(page.to(self.device))
            memory = self.proj(features)
        return self.store.put(bytes(old.tolist()), memory)


class NoGradRoundLLM(MEMModel):
    """The base LM is as frozen as the encoder is. But what is trained stands before it."""

    def predict(self, embeds, attends):
        with torch.no_grad():
            return super().predict(embeds, attends)


class DetachingStore(PageStore):
    """Hands back the copy that it keeps."""

    def put(self, key, memory):
        self.pages[key] = memory.detach()
        return self.pages[key]
