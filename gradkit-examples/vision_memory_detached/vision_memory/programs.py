"""The programs of the study by name, and what can be measured on them.

``make_never_called`` is rebuilt from the report. ``make_attempt_1`` to ``make_attempt_3`` mend what was not broken, and
``make_fixed`` leaves the model as it was and chooses the texts. The other three are broken where the reports looked.
"""

import torch

from vision_memory.adapter_only_trainer import NOTES, batches, worth_an_image
from vision_memory.attempts import ATTEMPTS, DetachingStore, NoGradRoundLLM, NoGradTooWide
from vision_memory.mem_adapter_only import MEMConfig, MEMModel, PageStore


def long_notes():
    return worth_an_image(NOTES, MEMConfig())


PROGRAMS = {  # name: model, store, texts
    "never_called": (MEMModel, PageStore, lambda: NOTES),
    "attempt_1": (ATTEMPTS[1], PageStore, lambda: NOTES),
    "attempt_2": (ATTEMPTS[2], PageStore, lambda: NOTES),
    "attempt_3": (ATTEMPTS[3], PageStore, lambda: NOTES),
    "fixed": (MEMModel, PageStore, long_notes),
    "detached": (MEMModel, DetachingStore, long_notes),
    "no_grad_too_wide": (NoGradTooWide, PageStore, long_notes),
    "no_grad_round_llm": (NoGradRoundLLM, PageStore, long_notes),
}


def build(kind=MEMModel, store=PageStore, dropout=0.0):
    """A model with the same random weights every time, in training mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(MEMConfig(dropout=dropout), store()).train()


def make(name):
    """``(model, step)`` of a program; the step is the one on its first batch."""
    kind, store, texts = PROGRAMS[name]
    model, batch = build(kind, store), batches(texts())[0]

    def step():
        return model(batch).loss

    return model, step


def make_never_called():
    return make("never_called")


def make_attempt_1():
    return make("attempt_1")


def make_attempt_2():
    return make("attempt_2")


def make_attempt_3():
    return make("attempt_3")


def make_fixed():
    return make("fixed")


def make_detached():
    return make("detached")


def make_no_grad_too_wide():
    return make("no_grad_too_wide")


def make_no_grad_round_llm():
    return make("no_grad_round_llm")


def gradients(kind, dropout=0.0):
    """The loss of one step, and the gradients of ``proj``, on a batch of everything: half is rendered, half padded."""
    model = build(kind, dropout=dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        loss = model(batches(NOTES, len(NOTES))[0]).loss
    loss.backward()
    return {"loss": loss.detach(), **{name: p.grad for name, p in model.proj.named_parameters()}}


def same(one, other):
    """Whether two results of ``gradients`` are the same to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
