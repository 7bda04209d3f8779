"""Pictures made by hand, as the tracer would make them of real programs: for tests of what is drawn of them."""

from __future__ import annotations

from dataclasses import replace

from gradkit.core.records import Edge, Finding, Location, ModuleInfo, Node, Note, Picture


class Sketch:
    """Writes a picture down in the order of the forward pass."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.modules: list[ModuleInfo] = []
        self.findings: list[Finding] = []

    def node(self, label, kind, status, *feeds, module="", shape=None, at=None, finding=None):
        number = len(self.nodes) + 1
        revived = kind == "autograd" and status == "dead"
        self.nodes.append(Node(number, label, kind, status, module, shape, at, finding, revived=revived))
        for feed in feeds:
            source = self.nodes[feed - 1]
            cut = "cut" in (kind, source.kind)
            live = status == "live" and source.status == "live"
            self.edges.append(Edge(feed, number, "cut" if cut else "live" if live else "dead"))
        return number

    def input(self, label, shape):
        return self.node(label, "input", "dead", shape=shape)

    def op(self, name, flow, *feeds, module="", shape=None, at=None):
        """``flow``: ``"live"``, ``"dead"`` (a grad_fn that no gradient comes to) or ``"call"`` (no grad_fn at all)."""
        camel = "".join(word.title() for word in name.split("_")) + "Backward0"
        kind = "call" if flow == "call" else "autograd"
        status = "live" if flow == "live" else "dead"
        return self.node(name if kind == "call" else camel, kind, status, *feeds, module=module, shape=shape, at=at)

    def weight(self, name, shape, status):
        return self.node(name, "parameter", status, module=name.rpartition(".")[0], shape=shape)

    def linear(self, path, feed, sizes, flow, status, at=None, bias=True):
        """A Linear layer: two parameters, the transpose that autograd sees, the addmm."""
        into, out = sizes
        weight = self.weight(f"{path}.weight", (out, into), status)
        turned = self.op("t", "call" if status == "frozen" else flow, weight, module=path, shape=(into, out), at=at)
        feeds = [feed, turned]
        if bias:
            feeds.append(self.weight(f"{path}.bias", (out,), status))
        self.module(path, "Linear", into * out + out * bias, status)
        return self.op("addmm", flow, *feeds, module=path, shape=(8, out), at=at)

    def norm(self, path, feed, width, flow, status, kind="LayerNorm"):
        weight = self.weight(f"{path}.weight", (width,), status)
        self.module(path, kind, width, status)
        return self.op("native_layer_norm", flow, feed, weight, module=path, shape=(8, width))

    def module(self, path, kind, numel=0, status="live"):
        trains = numel if status in ("live", "starved") else 0
        self.modules.append(ModuleInfo(path, kind, numel, trains, numel if status == "live" else 0, True))

    def container(self, path, kind):
        """A module that holds those already there below it."""
        below = [module for module in self.modules if module.path.startswith(f"{path}.") or not path]
        leaves = [m for m in below if not any(other.path.startswith(f"{m.path}.") for other in below)]
        self.modules.append(
            ModuleInfo(
                path, kind, *(sum(getattr(m, name) for m in leaves) for name in ("numel", "trainable", "reached")), True
            )
        )

    def starved(self):
        return tuple(node.label for node in self.nodes if node.status == "starved")

    def picture(self, loss, backward):
        return Picture(tuple(self.nodes), tuple(self.edges), tuple(self.modules), tuple(self.findings), loss, backward)


def mlp(cut=True):
    """Three layers; the second activation is detached."""
    s = Sketch()
    at = Location(
        "/home/ann/train.py",
        18,
        13,
        45,
        "Net.forward",
        "        h = torch.relu(self.fc2(h)).detach()  # keep memory low",
    )
    at = replace(at, column=36, end_column=45)
    x = s.input("x", (8, 4))
    before, status = ("dead", "starved") if cut else ("live", "live")
    h = s.linear("fc1", x, (4, 16), before, status)
    h = s.op("relu", before, h, shape=(8, 16))
    h = s.linear("fc2", h, (16, 16), before, status)
    h = s.op("relu", before, h, shape=(8, 16))
    if cut:
        h = s.node("detach", "cut", "cut", h, shape=(8, 16), at=at, finding=0)
    h = s.linear("fc3", h, (16, 2), "live", "live")
    h = s.op("log_softmax", "live", h, shape=(8, 2))
    h = s.op("nll_loss", "live", h, shape=())
    s.node("loss", "loss", "live", h, shape=())
    s.container("", "Net")
    if cut:
        names = s.starved()
        s.findings.append(
            Finding("detach", at, proof="proven", parameters=names, numel=352, call="detach", revived=names)
        )
    return s.picture("0.6931", True)


def gpt(layers=12, cut_in=5, statuses=None):
    """A GPT-2; the block ``cut_in`` runs under no_grad. ``statuses``: one for each layer, to make them unlike."""
    s = Sketch()
    width = 768
    at = Location("/home/ann/model.py", 88, 22, 37, "GPT.forward", "                with torch.no_grad():")
    inner = Location("/home/ann/model.py", 89, 30, 43, "GPT.forward", "                    hidden = block(hidden)")
    ids = s.input("input_ids", (2, 128))
    half = "live" if cut_in is None else "dead"
    grow = "live" if cut_in is None else "starved"
    wte = s.weight("transformer.wte.weight", (50257, width), grow)
    h = s.op("embedding", half, ids, wte, module="transformer.wte", shape=(2, 128, width))
    wpe = s.weight("transformer.wpe.weight", (1024, width), grow)
    p = s.op("embedding", half, wpe, module="transformer.wpe", shape=(1, 128, width))
    s.module("transformer.wte", "Embedding", 50257 * width, grow)
    s.module("transformer.wpe", "Embedding", 1024 * width, grow)
    h = s.op("add", half, h, p, module="transformer", shape=(2, 128, width))
    mask = s.op("where", "call", ids, module="transformer", shape=(2, 1, 128, 128))
    for i in range(layers):
        before = cut_in is not None and i <= cut_in
        flow = "call" if i == cut_in else "dead" if before else "live"
        status = statuses[i] if statuses else "starved" if before else "live"
        h = _block(s, f"transformer.h.{i}", h, mask, flow, status, width)
        if i == cut_in:
            h = s.node("no_grad", "cut", "cut", h, module="transformer", at=at, finding=0)
    s.container("transformer.h", "ModuleList")
    h = s.norm("transformer.ln_f", h, width, "live", "live")
    s.container("transformer", "GPT2Model")
    h = s.linear("lm_head", h, (width, 50257), "live", "live", bias=False)
    h = s.op("slice", "live", h, shape=(2, 127, 50257))
    h = s.op("nll_loss", "live", s.op("log_softmax", "live", h), shape=())
    s.node("loss", "loss", "live", h, shape=())
    s.container("", "GPT2LMHeadModel")
    if cut_in is not None:
        names = s.starved()
        s.findings.append(
            Finding(
                "no_grad_block",
                at,
                (Note("lost_here", inner), Note("called_by", replace(inner, line=90))),
                proof="proven",
                parameters=names,
                numel=77_000_000,
                module="transformer",
                call="no_grad",
                revived=names,
                reruns=1,
            )
        )
    return s.picture("10.83", True)


def _block(s, path, h, mask, flow, status, width):
    n = s.norm(f"{path}.ln_1", h, width, flow, status)
    a = s.linear(f"{path}.attn.c_attn", n, (width, 3 * width), flow, status)
    a = s.op("split", flow, a, module=f"{path}.attn")
    a = s.op("scaled_dot_product_attention", flow, a, mask, module=f"{path}.attn")
    a = s.linear(f"{path}.attn.c_proj", a, (width, width), flow, status)
    s.container(f"{path}.attn", "GPT2Attention")
    h = s.op("add", flow, h, a, module=path)
    n = s.norm(f"{path}.ln_2", h, width, flow, status)
    m = s.linear(f"{path}.mlp.c_fc", n, (width, 4 * width), flow, status)
    m = s.op("gelu", flow, m, module=f"{path}.mlp")
    m = s.linear(f"{path}.mlp.c_proj", m, (4 * width, width), flow, status)
    s.container(f"{path}.mlp", "GPT2MLP")
    h = s.op("add", flow, h, m, module=path)
    s.container(path, "GPT2Block")
    return h


def vision(used=True, detached=True):
    """A frozen encoder and language model with a trainable projection between; it is detached, or never called."""
    s = Sketch()
    text = "        vision_embeds = self.proj(feats).detach()"
    at = Location("/home/ann/vision.py", 41, 41, 50, "VisionMemory.embed", text)
    pixels, ids = s.input("pixel_values", (2, 3, 64, 64)), s.input("input_ids", (2, 48))
    dead = "dead" if detached else "live"
    grow = "starved" if detached or not used else "live"
    after = "live" if used and not detached else "call"
    h = pixels
    if used:
        for i in range(12):
            h = s.norm(f"ocr_encoder.layers.{i}.norm", h, 512, "call", "frozen")
            h = s.linear(f"ocr_encoder.layers.{i}.fc", h, (512, 512), "call", "frozen")
            s.container(f"ocr_encoder.layers.{i}", "ViTLayer")
        s.container("ocr_encoder.layers", "ModuleList")
        s.container("ocr_encoder", "OcrEncoder")
        h = s.linear("proj.0", h, (512, 4096), dead, grow)
        h = s.op("gelu", dead, h, module="proj.1", shape=(2, 8, 4096))
        s.module("proj.1", "GELU")
        h = s.linear("proj.2", h, (4096, 4096), dead, grow)
        if detached:
            h = s.node("detach", "cut", "cut", h, shape=(2, 8, 4096), at=at, finding=0)
    wte = s.weight("base_llm.embed_tokens.weight", (151936, 4096), "frozen")
    e = s.op("embedding", "call", ids, wte, module="base_llm.embed_tokens", shape=(2, 48, 4096))
    s.module("base_llm.embed_tokens", "Embedding", 151936 * 4096, "frozen")
    h = s.op("cat", after, *([h, e] if used else [e]), shape=(2, 64, 4096))
    for i in range(36):
        h = s.norm(f"base_llm.layers.{i}.input_layernorm", h, 4096, after, "frozen", "Qwen3RMSNorm")
        h = s.linear(f"base_llm.layers.{i}.mlp", h, (4096, 4096), after, "frozen")
        s.container(f"base_llm.layers.{i}", "Qwen3DecoderLayer")
    s.container("base_llm.layers", "ModuleList")
    h = s.linear("base_llm.lm_head", h, (4096, 151936), after, "frozen")
    s.container("base_llm", "Qwen3ForCausalLM")
    h = s.op("cross_entropy", after, h, shape=())
    s.node("loss", "loss", "live" if after == "live" else "dead", h, shape=())
    if not used:
        for name, shape in (
            ("0.weight", (4096, 512)),
            ("0.bias", (4096,)),
            ("2.weight", (4096, 4096)),
            ("2.bias", (4096,)),
        ):
            s.weight(f"proj.{name}", shape, "starved")
        s.module("proj.0", "Linear", 4096 * 513, "starved")
        s.module("proj.1", "GELU")
        s.module("proj.2", "Linear", 4096 * 4097, "starved")
    s.container("proj", "Sequential")
    s.container("", "VisionMemory")
    names = s.starved()
    if not used:
        where = Location(
            "/home/ann/vision.py", 52, 9, 30, "VisionMemory.forward", "        if len(text) < self.min_chars:"
        )
        s.findings.append(
            Finding("trainable_unused", where, proof="observed", parameters=names, numel=18_882_560, module="proj")
        )
    elif detached:
        s.findings.append(
            Finding(
                "detach", at, proof="proven", parameters=names, numel=18_882_560, call="detach", revived=names, reruns=1
            )
        )
    return s.picture("2.3026", after == "live")


def adapter(layers=4, trainable=False):
    """A LoRA run: loaded for inference, so that all of it is frozen; or as it should be."""
    s = Sketch()
    root = "base_model.model.model"
    flow, status = ("live", "live") if trainable else ("call", "frozen")
    ids = s.input("input_ids", (2, 32))
    wte = s.weight(f"{root}.embed_tokens.weight", (1000, 64), "frozen")
    h = s.op("embedding", "call", ids, wte, module=f"{root}.embed_tokens", shape=(2, 32, 64))
    s.module(f"{root}.embed_tokens", "Embedding", 64000, "frozen")
    for i in range(layers):
        h = s.norm(f"{root}.layers.{i}.input_layernorm", h, 64, flow if i else "call", "frozen", "Qwen3RMSNorm")
        parts = []
        for name in ("q_proj", "v_proj"):
            path = f"{root}.layers.{i}.self_attn.{name}"
            base = s.linear(f"{path}.base_layer", h, (64, 64), flow if i else "call", "frozen", bias=False)
            low = s.linear(f"{path}.lora_A.default", h, (64, 8), flow, status, bias=False)
            low = s.linear(f"{path}.lora_B.default", low, (8, 64), flow, status, bias=False)
            parts.append(s.op("add", flow, base, low, module=path))
            s.container(path, "lora.Linear")
        h = s.op("scaled_dot_product_attention", flow, *parts, module=f"{root}.layers.{i}.self_attn")
        s.container(f"{root}.layers.{i}.self_attn", "Qwen3Attention")
        s.container(f"{root}.layers.{i}", "Qwen3DecoderLayer")
    s.container(f"{root}.layers", "ModuleList")
    h = s.norm(f"{root}.norm", h, 64, flow, "frozen", "Qwen3RMSNorm")
    s.container(root, "Qwen3Model")
    h = s.linear("base_model.model.lm_head", h, (64, 1000), flow, "frozen", bias=False)
    s.container("base_model.model", "Qwen3ForCausalLM")
    s.container("base_model", "LoraModel")
    h = s.op("nll_loss", flow, s.op("log_softmax", flow, h), shape=())
    s.node("loss", "loss", "live" if trainable else "dead", h, shape=())
    s.container("", "PeftModelForCausalLM")
    if not trainable:
        text = '    model = PeftModel.from_pretrained(base, "runs/lora")'
        at = Location("/home/ann/resume.py", 23, 13, 57, "build", text)
        names = tuple(n.label for n in s.nodes if n.kind == "parameter" and ".lora_" in n.label)
        s.findings.append(
            Finding("adapter_inference_mode", at, proof="proven", parameters=names, numel=8192, revived=names, reruns=1)
        )
    return s.picture("6.9078", trainable)


def frozen_all():
    """A classifier of which every parameter is frozen."""
    s = Sketch()
    x = s.input("image", (8, 784))
    h = s.linear("body.0", x, (784, 128), "call", "frozen")
    h = s.op("relu", "call", h, module="body.1", shape=(8, 128))
    s.module("body.1", "ReLU")
    s.container("body", "Sequential")
    h = s.linear("head", h, (128, 10), "call", "frozen")
    h = s.op("cross_entropy", "call", h, shape=())
    s.node("loss", "loss", "dead", h, shape=())
    s.container("", "Classifier")
    at = Location("/home/ann/fine_tune.py", 9, 5, 31, "freeze", "    model.requires_grad_(False)")
    names = tuple(node.label for node in s.nodes if node.kind == "parameter")
    s.findings.append(Finding("frozen_all", at, proof="observed", parameters=names, numel=101_770))
    return s.picture("2.3026", False)


def functional():
    """No module at all: two tensors, one of them lost on its way through NumPy."""
    s = Sketch()
    at = Location(
        "/home/ann/拟合.py",
        7,
        25,
        44,
        "step",
        "    y = torch.from_numpy(np.sin((w * x).detach().numpy()))  # 用 NumPy 计算正弦",
    )
    x = s.input("x", (16,))
    w = s.node("w", "parameter", "starved", shape=())
    b = s.node("b", "parameter", "live", shape=())
    h = s.op("mul", "dead", w, x, shape=(16,))
    h = s.node("numpy", "cut", "cut", h, shape=(16,), at=at, finding=0)
    h = s.op("add", "live", h, b, shape=(16,))
    h = s.op("mean", "live", s.op("pow", "live", h, shape=(16,)), shape=())
    s.node("loss", "loss", "live", h, shape=())
    s.findings.append(Finding("numpy_roundtrip", at, proof="likely", parameters=("w",), numel=1, call="numpy"))
    return s.picture("0.51", True)


def hostile():
    """Names that would break a careless drawing."""
    s = Sketch()
    x = s.input("", None)
    at = Location('C:\\tmp\\<b>&"x".py', 3, 1, 1, "f", '\ty = "<a & b>" \x07 \\N \\l + x')
    w = s.node('w<1>&"\\N\n', "parameter", "starved", module="a<b>", shape=(1,))
    h = s.node("\n ()", "autograd", "dead", x, w, module="a<b>")
    h = s.node("cut", "cut", "cut", h, module="a<b>", at=at, finding=0)
    h = s.node("", "call", "dead", h, module="模型.层")
    h = s.node("<b>", "call", "dead", h, module="模型.层")
    s.node("loss", "loss", "dead", h)
    s.findings.append(Finding("detach", at, proof="likely", parameters=('w<1>&"\\N\n',)))
    return s.picture("<nan>", False)


def residual(layers=12, cut_layers=(5,)):
    """Layers with a residual; in some of them the branch is detached inside the attention, by one line of code."""
    s = Sketch()
    at = Location(
        "/home/ann/attn.py",
        31,
        16,
        42,
        "Attention.forward",
        "        return self.out(mixed.detach())  # no second pass",
    )
    at = replace(at, column=25, end_column=39)
    x = s.input("x", (2, 16, 64))
    h = s.linear("embed", x, (64, 64), "live", "live")
    for i in range(layers):
        path, cut = f"layers.{i}", i in cut_layers
        flow, status = ("dead", "starved") if cut else ("live", "live")
        a = s.linear(f"{path}.attn.qkv", h, (64, 192), flow, status)
        a = s.op("scaled_dot_product_attention", flow, a, module=f"{path}.attn", shape=(2, 16, 64))
        if cut:
            a = s.node("detach", "cut", "cut", a, module=f"{path}.attn", shape=(2, 16, 64), at=at, finding=0)
        a = s.linear(f"{path}.attn.out", a, (64, 64), "live", "live")
        s.container(f"{path}.attn", "Attention")
        h = s.op("add", "live", h, a, module=path, shape=(2, 16, 64))
        s.container(path, "Layer")
    s.container("layers", "ModuleList")
    h = s.linear("head", h, (64, 10), "live", "live")
    s.node("loss", "loss", "live", s.op("mse_loss", "live", h, shape=()), shape=())
    s.container("", "Net")
    if cut_layers:
        names = s.starved()
        s.findings.append(
            Finding(
                "detach",
                at,
                proof="proven",
                parameters=names,
                numel=12_480,
                module=f"layers.{cut_layers[0]}.attn",
                call="detach",
                revived=names,
                reruns=1,
            )
        )
    return s.picture("1.25", True)


def two_cuts():
    """A value that is cut twice on its way, by two lines: both must go."""
    s = Sketch()
    one = Location("/home/ann/two.py", 11, 9, 21, "Net.forward", "    h = self.a(x).detach()")
    one = replace(one, column=18, end_column=27)
    other = Location("/home/ann/two.py", 12, 9, 23, "Net.forward", "    h = self.b(h).data")
    other = replace(other, column=18, end_column=23)
    x = s.input("x", (4, 8))
    h = s.linear("a", x, (8, 8), "dead", "starved")
    h = s.node("detach", "cut", "cut", h, at=one, finding=0)
    h = s.linear("b", h, (8, 8), "dead", "starved")
    h = s.node("data", "cut", "cut", h, at=other, finding=1)
    h = s.linear("c", h, (8, 1), "call", "frozen")
    s.node("loss", "loss", "dead", s.op("mean", "call", h, shape=()), shape=())
    s.container("", "Net")
    s.findings.append(
        Finding(
            "detach",
            one,
            proof="proven",
            parameters=("a.weight", "a.bias"),
            numel=72,
            call="detach",
            revived=("a.weight", "a.bias"),
            reruns=3,
        )
    )
    s.findings.append(
        Finding(
            "data_attr",
            other,
            proof="proven",
            parameters=s.starved(),
            numel=144,
            call="data",
            revived=s.starved(),
            reruns=3,
        )
    )
    return s.picture("0.1", False)


ALL = {
    "mlp_detach": mlp,
    "mlp_healthy": lambda: mlp(cut=False),
    "gpt_no_grad": gpt,
    "gpt_healthy": lambda: gpt(cut_in=None),
    "vision_detach": vision,
    "vision_unused": lambda: vision(used=False),
    "vision_healthy": lambda: vision(detached=False),
    "adapter_frozen": adapter,
    "adapter_healthy": lambda: adapter(trainable=True),
    "frozen_all": frozen_all,
    "functional": functional,
    "hostile": hostile,
    "residual": residual,
    "every_layer": lambda: residual(cut_layers=tuple(range(12))),
    "two_cuts": two_cuts,
}
