"""Learners' answers to the workshop's exercises: what is changed in the program, and what the check should say."""
# ruff: noqa: E501  changes of programs are easier to read on one line

from __future__ import annotations

from dataclasses import dataclass

from gradkit.teaching import exercises


@dataclass(frozen=True)
class Answer:
    """A learner's answer: changes of the program, and what the check should find wrong, in its order."""

    name: str
    kind: str
    edits: tuple[tuple[str, str], ...]
    wrong: tuple[str, ...] = ()
    says: str = ""  # stands in the verdict

    def source(self) -> str:
        text = exercises.program(f"workshop/{exercises.exercise(self.name).book}")
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
EMPTY = "    if not known.any():\n        return torch.tensor(0.0)\n"
DATA = "        words = words.data\n"
BLOCK = """\
        with torch.no_grad():
            length = mixed.norm(dim=1, keepdim=True)
            return mixed / length
"""
UNBLOCKED = "        return mixed / mixed.norm(dim=1, keepdim=True)\n"
JOINED = "        joined = torch.cat("
EMPTIED = "    optimizer.zero_grad()\n    optimizer.step()\n"
EARLY = """\
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.head = nn.Linear(16, 4)
"""
LATE = "".join(reversed(EARLY.splitlines(keepends=True)))
POOL = "    @torch.no_grad()\n    def pool"
EVALUATE = "@torch.no_grad()\ndef evaluate"
DAYS = """\
    total = 0.0
    for one, true in zip(expected.tolist(), days.tolist()):
        distance = abs(one - true)
        total += max(distance - 0.5, 0.0)
    return total / len(days)
"""
TENSORS = "    return torch.relu((expected - days).abs() - 0.5).mean()\n"
VECTORS = 'if name.endswith("bias")]'
EVERY_VECTOR = "if p.ndim <= 1]"

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
        ("all_frozen", "no_history"),
    ),
    Answer(
        "forgotten_no_grad", "cheat: another loss",
        ((SCORES, ""), ("F.cross_entropy(scores, kind)", "sum(p.square().sum() for p in model.parameters())")),
        ("other_loss",),
    ),
    Answer(
        "forgotten_no_grad", "cheat: nearly the same loss",
        ((SCORES, "    scores = model(leaf)\n"), ("return F.cross", "return 1.0004 * F.cross")), ("other_loss",),
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
    Answer("sleeping_adapter", "untouched", (), ("all_frozen", "no_history"), "loaded for inference"),
    Answer(
        "sleeping_adapter", "wrong: train mode twice", ((TRAIN, TRAIN + "    model.base_model.train()\n"),),
        ("all_frozen", "no_history"),
    ),
    Answer(
        "sleeping_adapter", "wrong: a flag on the module", ((TRAIN, TRAIN + "    model.requires_grad = True\n"),),
        ("all_frozen", "no_history"),
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
        ("all_frozen", "decreed"),
    ),
    Answer("sleeping_adapter", "right", (("checkpoint.name)\n    model", "checkpoint.name, is_trainable=True)\n    model"),)),
    Answer(
        "sleeping_adapter", "right, in another way",
        ((TRAIN, "    for n, p in model.named_parameters():\n        p.requires_grad_('lora_' in n)\n"),),
    ),
    # ----
    Answer("numpy_roundtrip", "untouched", (), ("starved",), "leaves torch for NumPy"),
    Answer("numpy_roundtrip", "wrong: numpy() without detach()", ((".detach()", ""),), ("raises",), ":28: level = np.log1p(energy.numpy())"),
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
        ("other_loss",),
    ),
    Answer(
        "numpy_roundtrip", "cheat: a new leaf", ((BACK, "        return torch.from_numpy(level).requires_grad_()\n"),),
        ("starved",),
    ),
    Answer(
        "numpy_roundtrip", "cheat: without the levels", (("self.head(self.levels(energy))", "self.head(energy)"),),
        ("other_loss",),
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
    # ----
    Answer("zero_loss", "untouched", (), ("no_history",), "the loss is a constant"),
    Answer("zero_loss", "wrong: the scores come first", ((EMPTY, "    model(photo)\n" + EMPTY),), ("no_history",)),
    Answer("zero_loss", "wrong: no loss at all", (("torch.tensor(0.0)", "None"),), ("no_tensor",)),
    Answer("zero_loss", "half right: a mean over nothing", ((EMPTY, ""), ("scores[known], label[known]", "scores, label")), ("other_loss",), "nan"),
    Answer("zero_loss", "half right: a sum in place of the mean", ((EMPTY, ""), ("scores[known], label[known])", 'scores, label, reduction="sum")')), ("other_loss",)),
    Answer("zero_loss", "half right: a zero of the head alone", (("torch.tensor(0.0)", "model.head.weight.sum() * 0.0"),), ("starved",), "body.weight"),
    Answer("zero_loss", "cheat: a constant that requires grad", (("torch.tensor(0.0)", "torch.tensor(0.0, requires_grad=True)"),), ("decreed",)),
    Answer("zero_loss", "cheat: always zero", (("    return F.cross_entropy(scores[known], label[known])", "    return scores.sum() * 0.0"), ("torch.tensor(0.0)", "model(photo).sum() * 0.0")), ("other_loss", "zero")),
    Answer("zero_loss", "cheat: labels are made up", ((EMPTY, "    if not known.any():\n        label = torch.zeros_like(label)\n        known = label == 0\n"),), ("other_loss",)),
    Answer("zero_loss", "right", ((EMPTY, ""), ("F.cross_entropy(scores[known], label[known])", "F.cross_entropy(scores[known], label[known], reduction='sum') / known.sum().clamp(min=1)"))),
    Answer("zero_loss", "right, in another way", (("torch.tensor(0.0)", "model(photo).sum() * 0.0"),)),
    Answer("zero_loss", "right, without the photos", (("torch.tensor(0.0)", "0.0 * sum(p.sum() for p in model.parameters())"),)),
    # ----
    Answer("two_cuts", "untouched", (), ("starved",), "keeping: head.weight, head.bias"),
    Answer("two_cuts", "wrong: the log is mended", (("words.detach()", "words"),), ("starved",)),
    Answer("two_cuts", "wrong: detach() in place of .data", (("words.data", "words.detach()"),), ("starved",), "mixer.weight"),
    Answer("two_cuts", "half right: the first cut", ((DATA, ""),), ("starved",), "4 parameters: encoder.weight"),
    Answer("two_cuts", "half right: the second cut", ((BLOCK, UNBLOCKED),), ("starved",), "keeping: mixer.weight"),
    Answer("two_cuts", "half right: the length stays in the block", ((DATA, ""), ("            return mixed / length", "        return mixed / length")), ("other_gradient",), "encoder.weight"),
    Answer("two_cuts", "cheat: a new leaf", (("words.data", "words.data.requires_grad_()"), (BLOCK, UNBLOCKED)), ("starved",), "encoder.weight"),
    Answer("two_cuts", "cheat: nothing is rescaled", ((DATA, ""), ("self.head(self.rescale(mixed))", "self.head(mixed)")), ("other_loss",)),
    Answer("two_cuts", "cheat: a straight way past the cut", ((DATA, ""), ("self.rescale(mixed))", "self.rescale(mixed) + mixed - mixed.detach())")), ("other_gradient",)),
    Answer("two_cuts", "right", ((DATA, ""), (BLOCK, UNBLOCKED))),
    Answer("two_cuts", "right, in another way", ((DATA, ""), (BLOCK, "        return F.normalize(mixed, dim=1)\n"))),
    # ----
    Answer("image_captions", "untouched", (), ("other_loss", "starved"), "projector.0.weight"),
    Answer("image_captions", "wrong: see() without its block", (("        with torch.no_grad():\n            return", "        return"),), ("other_loss", "starved")),
    Answer("image_captions", "wrong: called beside the way", ((JOINED, "        self.memory(image)\n" + JOINED),), ("other_loss", "starved")),
    Answer("image_captions", "half right: called, inside the block", (("            return torch.relu(self.eye(image))", "            return self.projector(torch.relu(self.eye(image)))"),), ("starved",), "keeping: decoder.weight"),
    Answer("image_captions", "half right: for the text as well", (("[self.see(image), text]", "[self.memory(image), self.projector(text)]"),), ("other_loss",)),
    Answer("image_captions", "half right: the eye learns as well", ((".requires_grad_(False)", ""), ("[self.see(image), text]", "[self.memory(image), text]")), ("unfrozen",), "eye.weight"),
    Answer("image_captions", "cheat: its result times zero", (("        return self.decoder(joined)", "        return self.decoder(joined) + 0.0 * self.memory(image).sum()"),), ("other_loss", "zero")),
    Answer("image_captions", "cheat: it is gone", (("        self.projector = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))\n", ""),), ("missing",), "projector.0.weight"),
    Answer("image_captions", "cheat: it is frozen", (("nn.Linear(16, 16))", "nn.Linear(16, 16)).requires_grad_(False)"),), ("frozen", "other_loss")),
    Answer("image_captions", "right", (("[self.see(image), text]", "[self.memory(image), text]"),)),
    Answer("image_captions", "right, in another way", (("self.see(image), text]", "self.projector(self.eye(image).relu()), text]"),)),
    # ----
    Answer("still_weights", "untouched", (), ("still",), "encoder.weight"),
    Answer("still_weights", "wrong: a larger learning rate", (("lr=0.1", "lr=10.0"),), ("still",)),
    Answer("still_weights", "wrong: train mode", (("    loss = loss_of", "    model.train()\n    loss = loss_of"),), ("still",)),
    Answer("still_weights", "half right: the order of the step", ((EMPTIED, "    optimizer.step()\n    optimizer.zero_grad()\n"),), ("still",), "These do move: encoder.weight, encoder.bias"),
    Answer("still_weights", "half right: the optimizer", ((EARLY, LATE),), ("still",), "the optimizer holds all of them"),
    Answer("still_weights", "half right: the optimizer holds the head alone", ((EARLY, LATE.replace("model.parameters", "model.head.parameters")), (EMPTIED, "    optimizer.step()\n    optimizer.zero_grad()\n")), ("still",), "These do move: head.weight"),
    Answer("still_weights", "half right: nothing is emptied", ((EARLY, LATE), (EMPTIED, "    optimizer.step()\n")), ("second_step",)),
    Answer("still_weights", "cheat: noise", (("    return loss.item()", "    for p in model.parameters():\n        p.data += 0.01 * torch.randn_like(p)\n    return loss.item()"),), ("other_step",)),
    Answer("still_weights", "cheat: the head of two is kept", (("    model.head = nn.Linear(16, 4)\n", ""),), ("missing",)),
    Answer("still_weights", "cheat: no optimizer", (("return model, optimizer", "return model"),), ("no_pair",)),
    Answer("still_weights", "right", ((EARLY, LATE), (EMPTIED, "    optimizer.step()\n    optimizer.zero_grad()\n"))),
    Answer("still_weights", "right, in another way", ((EARLY, EARLY + "    optimizer.add_param_group({'params': model.head.parameters()})\n"), (EMPTIED, "    optimizer.step()\n    model.zero_grad()\n"))),
    # ----
    Answer("clinic", "untouched", (), ("starved", "other_gradient", "still"), "notes.table.weight"),
    Answer("clinic", "wrong: evaluate() is blamed", ((EVALUATE, "def evaluate"),), ("starved", "other_gradient", "still")),
    Answer("clinic", "wrong: the copy for the log is blamed", (("case.detach()", "case"),), ("starved", "other_gradient", "still")),
    Answer("clinic", "half right: the notes", ((POOL, "    def pool"),), ("starved", "other_gradient", "still"), "days.weight, days.bias"),
    Answer("clinic", "half right: the days", ((DAYS, TENSORS),), ("starved", "still"), "notes.table.weight"),
    Answer("clinic", "half right: the optimizer", ((VECTORS, EVERY_VECTOR),), ("starved", "other_gradient"), "3 parameters"),
    Answer("clinic", "half right: two of three", ((POOL, "    def pool"), (DAYS, TENSORS)), ("still",), "train_step() leaves fusion.norm.weight"),
    Answer("clinic", "half right: weight decay for all", ((POOL, "    def pool"), (DAYS, TENSORS), ("parameter_groups(model, settings), lr", "model.parameters(), weight_decay=settings.decay, lr")), ("other_step",)),
    Answer("clinic", "cheat: only the first loss counts", ((POOL, "    def pool"), (VECTORS, EVERY_VECTOR), (" + SETTINGS.share_of_days * second", "")), ("other_loss", "starved")),
    Answer("clinic", "cheat: the norm is frozen", ((POOL, "    def pool"), (DAYS, TENSORS), ("self.norm = nn.LayerNorm(settings.width)", "self.norm = nn.LayerNorm(settings.width).requires_grad_(False)")), ("frozen",)),
    Answer("clinic", "cheat: days as a leaf", ((POOL, "    def pool"), (VECTORS, EVERY_VECTOR), ("return total / len(days)", "return torch.tensor(total / len(days), requires_grad=True)")), ("starved", "other_gradient")),
    Answer("clinic", "right", ((POOL, "    def pool"), (DAYS, TENSORS), (VECTORS, EVERY_VECTOR))),
    Answer("clinic", "right, in another way", (("    @torch.no_grad()\n    def pool", "    @torch.enable_grad()\n    def pool"), ("zip(expected.tolist(), days.tolist())", "zip(expected, days)"), ("max(distance - 0.5, 0.0)", "torch.relu(distance - 0.5)"), (VECTORS, EVERY_VECTOR))),
]  # fmt: skip
