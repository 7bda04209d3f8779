"""Learners' answers to the workshop's exercises: what is changed in the program, and what the check should say."""
# ruff: noqa: E501  changes of programs are easier to read on one line

from __future__ import annotations

from dataclasses import dataclass

from gradkit import exercises


@dataclass(frozen=True)
class Answer:
    """A learner's answer: changes of the program, and what the check should find wrong, in its order."""

    name: str
    kind: str
    edits: tuple[tuple[str, str], ...]
    wrong: tuple[str, ...] = ()
    says: str = ""  # stands in the verdict

    def source(self) -> str:
        text = exercises.program(f"workshop/{exercises.find(self.name).book}")
        for old, new in self.edits:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)}× in the program"
            text = text.replace(old, new)
        return text

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}"


SCORES = "    with torch.no_grad():\n        scores = model(leaf)\n"
LOG = "        level = np.log1p(energy.detach().numpy())\n"
MEAN = "        level = level - level.mean(axis=1, keepdims=True)\n"
BACK = "        return torch.from_numpy(level)\n"
TRAIN = "    model.train()\n"

ANSWERS = [
    Answer("forgotten_no_grad", "untouched", (), ("no_history",), "torch.no_grad() block"),
    Answer(
        "forgotten_no_grad", "wrong: another switch beside it",
        ((SCORES, "    torch.set_grad_enabled(True)\n" + SCORES),), ("no_history",),
    ),
    Answer(
        "forgotten_no_grad", "wrong: another kind of block", (("torch.no_grad()", "torch.inference_mode()"),),
        ("no_history",), "inference_mode",
    ),
    Answer(
        "forgotten_no_grad", "half right: the head learns",
        (("        scores = model(leaf)\n", "        hidden = torch.tanh(model.encoder(leaf))\n    scores = model.head(hidden)\n"),),
        ("starved",), "keeping: head.weight, head.bias",
    ),
    Answer(
        "forgotten_no_grad", "cheat: requires_grad_ on the loss",
        (("(scores, kind)", "(scores, kind).requires_grad_()"),), ("decreed",), "it is a leaf",
    ),
    Answer(
        "forgotten_no_grad", "cheat: requires_grad_ on the scores",
        (("        scores = model(leaf)\n", "        scores = model(leaf).requires_grad_()\n"),
         ("    return F.cross", "    scores.requires_grad_()\n    return F.cross")),
        ("starved",),
    ),
    Answer(
        "forgotten_no_grad", "cheat: all frozen", (("    return LeafNet()", "    return LeafNet().requires_grad_(False)"),),
        ("frozen", "no_history"),
    ),
    Answer(
        "forgotten_no_grad", "cheat: another loss",
        ((SCORES, ""), ("F.cross_entropy(scores, kind)", "sum(p.square().sum() for p in model.parameters())")),
        ("other_loss", "other_gradient"),
    ),
    Answer(
        "forgotten_no_grad", "cheat: the layer is gone",
        ((SCORES, "    scores = model(leaf)\n"), ("        self.encoder = nn.Linear(8, 16)\n", ""),
         ("torch.tanh(self.encoder(leaf))", "torch.cat([leaf, leaf], 1)")),
        ("missing",), "encoder.weight",
    ),
    Answer(
        "forgotten_no_grad", "wrong: it raises", ((SCORES, ""),), ("raises",), "NameError",
    ),
    Answer("forgotten_no_grad", "right", ((SCORES, "    scores = model(leaf)\n"),)),
    Answer("forgotten_no_grad", "right, in another way", (("torch.no_grad()", "torch.enable_grad()"),)),
    # ----
    Answer("sleeping_adapter", "untouched", (), ("frozen", "no_history"), "loaded for inference"),
    Answer(
        "sleeping_adapter", "wrong: train mode twice", ((TRAIN, TRAIN + "    model.base_model.train()\n"),),
        ("frozen", "no_history"),
    ),
    Answer(
        "sleeping_adapter", "wrong: a flag on the module", ((TRAIN, TRAIN + "    model.requires_grad = True\n"),),
        ("frozen", "no_history"),
    ),
    Answer(
        "sleeping_adapter", "half right: the base learns as well", ((TRAIN, "    model.requires_grad_(True)\n"),),
        ("unfrozen",), "encoder.base_layer.weight",
    ),
    Answer(
        "sleeping_adapter", "half right: only one of the matrices",
        ((TRAIN, "    for n, p in model.named_parameters():\n        p.requires_grad = 'lora_A' in n\n"),),
        ("frozen",), "lora_B",
    ),
    Answer(
        "sleeping_adapter", "cheat: a new adapter",
        (("PeftModel.from_pretrained(make_base(), checkpoint.name)",
          "get_peft_model(make_base(), LoraConfig(r=4, target_modules=['encoder', 'head']))"),),
        ("not_kept",), "lora_A",
    ),
    Answer(
        "sleeping_adapter", "cheat: requires_grad_ on the loss",
        (("return F.cross_entropy(model(words), tag)", "return F.cross_entropy(model(words), tag).requires_grad_()"),),
        ("frozen", "decreed"),
    ),
    Answer("sleeping_adapter", "right", (("checkpoint.name)\n    model", "checkpoint.name, is_trainable=True)\n    model"),)),
    Answer(
        "sleeping_adapter", "right, in another way",
        ((TRAIN, "    for n, p in model.named_parameters():\n        p.requires_grad_('lora_' in n)\n"),),
    ),
    # ----
    Answer("numpy_roundtrip", "untouched", (), ("starved",), "leaves torch for NumPy"),
    Answer("numpy_roundtrip", "wrong: numpy() without detach()", ((".detach()", ""),), ("raises",), "RuntimeError"),
    Answer("numpy_roundtrip", "wrong: .data in its place", ((".detach()", ".data"),), ("starved",)),
    Answer(
        "numpy_roundtrip", "half right: the mean stays in NumPy",
        ((LOG, "        level = torch.log1p(energy)\n"),
         (MEAN, "        level = level - torch.from_numpy(level.detach().numpy().mean(axis=1, keepdims=True))\n"),
         (BACK, "        return level\n")),
        ("other_gradient",), "keeping: head.weight",
    ),
    Answer(
        "numpy_roundtrip", "half right: in torch, along the wrong axis",
        ((LOG, "        level = torch.log1p(energy)\n"), ("axis=1, keepdims", "dim=0, keepdim"), (BACK, "        return level\n")),
        ("other_loss", "other_gradient"),
    ),
    Answer(
        "numpy_roundtrip", "cheat: a new leaf", ((BACK, "        return torch.from_numpy(level).requires_grad_()\n"),),
        ("starved",),
    ),
    Answer(
        "numpy_roundtrip", "cheat: without the levels", (("self.head(self.levels(energy))", "self.head(energy)"),),
        ("other_loss", "other_gradient"),
    ),
    Answer(
        "numpy_roundtrip", "cheat: nothing is left to learn but the head",
        (("    return BirdNet()", "    net = BirdNet()\n    net.filters.requires_grad_(False)\n    return net"),),
        ("frozen",), "filters.weight",
    ),
    Answer(
        "numpy_roundtrip", "right",
        ((LOG, "        level = torch.log1p(energy)\n"), (BACK, "        return level\n"), ("axis=1, keepdims", "dim=1, keepdim")),
    ),
]  # fmt: skip
