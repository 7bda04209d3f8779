"""Trains what may be trained of a MEMModel, on texts that are taken in order of their length."""

import torch

from vision_memory.mem_adapter_only import trainable
from gradkit.core.i18n import words

NOTES = [
    "Fog. Nothing seen.",
    "Low water at 07:24.",
    "Gale from the west, did not go down.",
    "Rain. One crab, no name yet.",
    "Low water at 05:40. The big anemone has moved half a hand to the left since Tuesday, two shrimps with it.",
    "Low water at 06:31. Nineteen limpets on the north wall, all on their rings. The one with the notch came last.",
    "The weed on the sill is back to its length of April. Under it eleven winkles, a blenny, and the blue bottle top.",
    "New moon. The lower pool lay open for an hour: four starfish on the mussels, one of them with a short arm.",
]


def tokenize(text):
    return torch.tensor(list(text.encode()))


def batches(texts, size=4):
    """Lists of token tensors. Like lengths go together, so that there is little to pad."""
    tokens = sorted((tokenize(text) for text in texts), key=len)
    return [tokens[start : start + size] for start in range(0, len(tokens), size)]


def worth_an_image(texts, config):
    """The texts that have enough before their last tokens; from the others ``proj`` cannot learn anything."""
    return [text for text in texts if len(tokenize(text)) >= config.keep + config.render_from]


def train(model, texts, epochs=3, learning_rate=1e-2):
    """Returns the loss of every step, before its update."""
    print_modes(model.train())
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=learning_rate)
    losses = []
    for epoch in range(epochs):
        for number, batch in enumerate(batches(texts)):
            loss = model(batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            print(words("case.batch_loss", epoch=epoch + 1, number=number + 1, loss=f"{losses[-1]:.4f}"))
    return losses


def print_modes(model):
    """Which parts are in train() and which in eval(), beside how much of them is trained: two different things."""
    print(words("case.modes"))
    for name, part in [(words("case.whole"), model), *model.named_children()]:
        mode = "train" if part.training else "eval"
        print(words("case.mode", name=name, mode=mode, size=f"{trainable(part):,}"))
