"""Right programs that refute general sentences: each does on purpose what a rule of thumb forbids.

A sentence that says "always", "never", "only" or "on either side" is run against all of them before it may stand
(`tests/teaching/test_truth.py`). Every parameter that may train in them learns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Built = tuple[nn.Module, Callable[[], torch.Tensor]]
AWKWARD: dict[str, Callable[[], Built]] = {}


def awkward(build: Callable[[], Built]) -> Callable[[], Built]:
    """Enter a program under its name."""
    AWKWARD[build.__name__] = build
    return build


@awkward
def a_gan_step() -> Built:
    """What ``detach()`` returns goes into a prediction: the discriminator is to judge, not to teach."""
    model = nn.ModuleDict({"generator": nn.Linear(4, 8), "discriminator": nn.Linear(8, 1)})
    noise, real = torch.randn(16, 4), torch.randn(16, 8)

    def step() -> torch.Tensor:
        fake = model["generator"](noise)
        judged = F.softplus(-model["discriminator"](real)) + F.softplus(model["discriminator"](fake.detach()))
        judged.mean().backward()
        return F.softplus(-model["discriminator"](fake)).mean()

    return model, step


@awkward
def truncated_bptt() -> Built:
    """What ``detach()`` returns goes into the next prediction: the memory of the window before."""
    model = nn.ModuleDict({"cell": nn.GRUCell(3, 4), "head": nn.Linear(4, 1)})
    windows, wanted = torch.randn(3, 2, 5, 3), torch.randn(3, 2, 5, 1)

    def step() -> torch.Tensor:
        memory, loss = torch.zeros(5, 4), torch.zeros(())
        for number, (window, wants) in enumerate(zip(windows, wanted, strict=True)):
            if number:
                loss.backward()
            memory, loss = memory.detach(), torch.zeros(())
            for x, want in zip(window, wants, strict=True):
                memory = model["cell"](x, memory)
                loss = loss + F.mse_loss(model["head"](memory), want)
        return loss

    return model, step


@awkward
def a_mixture_of_experts() -> Built:
    """An argmax sends each example to one expert; the gate learns by the weight of the expert that was taken."""
    model = nn.ModuleDict({"gate": nn.Linear(4, 2), "experts": nn.ModuleList(nn.Linear(4, 1) for _ in range(2))})
    x = torch.randn(32, 4)

    def step() -> torch.Tensor:
        shares = model["gate"](x).softmax(dim=1)
        taken = shares.argmax(dim=1, keepdim=True)
        answers = torch.cat([expert(x) for expert in model["experts"]], dim=1)
        return (answers * shares).gather(1, taken).square().mean()

    return model, step


@awkward
def a_straight_through_estimate() -> Built:
    """A comparison decides, and a detached difference goes into the prediction."""
    model, x = nn.ModuleDict({"gate": nn.Linear(4, 1), "answer": nn.Linear(4, 1)}), torch.randn(16, 4)

    def step() -> torch.Tensor:
        soft = torch.sigmoid(model["gate"](x))
        hard = (soft > 0.5).float()
        return ((soft + (hard - soft).detach()) * model["answer"](x) - 1).square().mean()

    return model, step


@awkward
def ddp_in_one_process() -> Built:
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model, x = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), torch.randn(6, 4)
    return model, lambda: model(x).square().mean()


class Words(nn.Module):
    """A small language model as peft expects one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.desk = nn.EmbeddingBag(9, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.desk(torch.tanh(self.mix(self.words(tokens))))


@awkward
def an_adapter_with_modules_to_save() -> Built:
    """What trains has ``lora_`` in its name, or is a whole copy of a layer."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=["mix"], modules_to_save=["desk"], init_lora_weights=False)
    model, tokens, desk = get_peft_model(Words(), config), torch.randint(0, 9, (6, 5)), torch.randint(0, 3, (6,))
    return model, lambda: F.cross_entropy(model(tokens), desk)


@awkward
def prompt_tuning() -> Built:
    """Nothing that trains has ``lora_`` in its name."""
    from peft import PromptTuningConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    base, tokens = LlamaForCausalLM(LlamaConfig(vocab_size=20, **sizes)), torch.randint(0, 20, (2, 5))
    model = get_peft_model(base, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


@awkward
def a_relu_that_is_shut_for_some_units() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(16, 4)
    with torch.no_grad():
        model[0].bias[:2] = -100.0
    return model, lambda: (model(x) - 1).square().mean()


@awkward
def a_clamp_that_is_saturated_for_some_examples() -> Built:
    """The clipped ratio of proximal policy optimisation: what lies outside of the bounds is to get no gradient."""
    model, x, gain = nn.Linear(4, 1), torch.randn(16, 4), torch.randn(16, 1)
    before = (model(x) + torch.linspace(-1, 1, 16)[:, None]).detach()

    def step() -> torch.Tensor:
        ratio = (model(x) - before).exp()
        return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()

    return model, step


@awkward
def norms_and_dropout_in_eval_mode() -> Built:
    layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1)]
    model, x = nn.Sequential(*layers).eval(), torch.randn(6, 4)
    return model, lambda: (model(x) - 1).square().mean()


@awkward
def a_tied_head() -> Built:
    """The head is never called; its weight is that of the embedding, and is multiplied by."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
            self.head.weight = self.words.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.words(tokens).tanh() @ self.head.weight.T

    model, tokens = Tied(), torch.randint(0, 10, (4, 5))
    return model, lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


@awkward
def attention_whose_projection_is_never_called() -> Built:
    """``MultiheadAttention`` hands the weight of ``out_proj`` to a function; a ``ModuleList`` holds the blocks."""

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + block(x, x, x)[0]
            return x

    model, x = Reader(), torch.randn(2, 5, 8)
    return model, lambda: (model(x) - 1).square().mean()


@awkward
def a_frozen_encoder_in_inference_mode() -> Built:
    """Something on the way to the loss runs in inference mode; nothing before its copy is to learn."""
    encoder, head, x = nn.Linear(4, 8).requires_grad_(False), nn.Linear(8, 1), torch.randn(6, 4)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            features = encoder(x)
        return (head(features.clone()) - 1).square().mean()

    return nn.ModuleDict({"encoder": encoder, "head": head}), step


@awkward
def a_teacher_under_a_decorator() -> Built:
    """The loss goes through a function that ``no_grad`` decorates: the teacher's."""
    model = nn.ModuleDict({"teacher": nn.Linear(4, 3).requires_grad_(False), "student": nn.Linear(4, 3)})
    x = torch.randn(6, 4)

    @torch.no_grad()
    def answers() -> torch.Tensor:
        return model["teacher"](x).softmax(dim=1)

    return model, lambda: F.kl_div(model["student"](x).log_softmax(dim=1), answers(), reduction="batchmean")


@awkward
def a_gradient_penalty() -> Built:
    """``requires_grad`` is set on what a model computed: the penalty is to teach the critic only."""
    critic = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1, bias=False))
    model = nn.ModuleDict({"generator": nn.Linear(4, 8).requires_grad_(False), "critic": critic})
    real, noise = torch.randn(6, 8), torch.randn(6, 4)

    def step() -> torch.Tensor:
        mixed = ((real + model["generator"](noise)) / 2).detach().requires_grad_()
        (slope,) = torch.autograd.grad(model["critic"](mixed).sum(), mixed, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()

    return model, step


@awkward
def a_queue_of_earlier_keys() -> Built:
    """What a momentum encoder computed is kept from step to step, as a constant."""
    model = nn.ModuleDict({"query": nn.Linear(4, 8), "key": nn.Linear(4, 8).requires_grad_(False)})
    x, queue = torch.randn(6, 4), list(torch.randn(3, 6, 8))

    def step() -> torch.Tensor:
        with torch.no_grad():
            for slow, fast in zip(model["key"].parameters(), model["query"].parameters(), strict=True):
                slow.lerp_(fast, 0.1)
            keys = model["key"](x)
        scores = model["query"](x) @ torch.cat([keys, *queue]).T
        queue[:] = [*queue[1:], keys]
        return F.cross_entropy(scores, torch.arange(6))

    return model, step


@awkward
def a_relu_in_place() -> Built:
    """A value is written into before backward, which does not need it."""
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 1)), torch.randn(6, 4)
    return model, lambda: (model(x) - 1).square().mean()


@awkward
def the_worst_example_softly() -> Built:
    """The loss is one number and neither a mean nor a sum."""
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    return model, lambda: (model(x) - 1).square().flatten().logsumexp(dim=0)


@awkward
def hard_examples_chosen_in_numpy() -> Built:
    """NumPy stands between the model and the loss, and integers do: they say which examples count."""
    model, x = nn.Linear(4, 1), torch.randn(6, 4)

    def step() -> torch.Tensor:
        losses = (model(x) - 1).square().squeeze(1)
        hardest = torch.from_numpy(losses.detach().numpy().argsort()[-3:].copy())
        return losses[hardest].mean()

    return model, step


@awkward
def a_remainder_after_floor() -> Built:
    """``floor`` is on the way to the loss, and a cast to an integer: the slope is that of the whole value."""
    model, x = nn.ModuleDict({"place": nn.Linear(4, 1), "cell": nn.Embedding(64, 1)}), torch.randn(64, 4)

    def step() -> torch.Tensor:
        place = model["place"](x) * 3
        cell = place.floor().squeeze(1).long() % 64
        return (place - place.floor() + model["cell"](cell) - 1).square().mean()

    with torch.no_grad():
        model["cell"].weight.uniform_(-1, 1)
    return model, step


@awkward
def a_parameter_of_the_first_pass() -> Built:
    """``nn.Parameter`` stands in ``forward``, and is made once."""

    class Lazy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "scale"):
                self.scale = nn.Parameter(torch.ones(x.shape[1]))
            return x * self.scale

    model, x = Lazy(), torch.randn(6, 4)
    model(x)
    return model, lambda: (model(x) - 1).square().mean()


@awkward
def terms_that_are_balanced_by_their_size() -> Built:
    """``item()`` stands between the model and the loss: each term counts as one."""
    model, x = nn.ModuleDict({"near": nn.Linear(4, 1), "far": nn.Linear(4, 1)}), torch.randn(6, 4)

    def step() -> torch.Tensor:
        terms = [(model[name](x) - size).square().mean() for name, size in (("near", 1), ("far", 100))]
        return torch.stack([term / term.item() for term in terms]).sum()

    return model, step


@awkward
def layers_that_a_list_names_once_more() -> Built:
    """A plain list holds what learns; so does the module itself."""

    class Ordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)
            self.order = [self.first, self.second]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.order:
                x = layer(x).sin()
            return x

    model, x = Ordered(), torch.randn(6, 4)
    return model, lambda: (model(x) - 1).square().mean()


@awkward
def a_copy_of_a_weight_to_begin_with() -> Built:
    """An ``nn.Parameter`` holds what was computed from another one, which is not to learn by it."""

    class Tuned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(4, 3).requires_grad_(False)
            self.tuned = nn.Parameter(self.base.weight.detach() * 0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + x @ self.tuned.T

    model, x = Tuned(), torch.randn(6, 4)
    return model, lambda: (model(x) - 1).square().mean()


@awkward
def meta_learning_of_first_order() -> Built:
    """A gradient goes into the loss without ``create_graph``: the slope of the slope is left out on purpose."""
    model, x = nn.Linear(4, 1), torch.randn(6, 4)

    def step() -> torch.Tensor:
        inner = (model(x) - 1).square().mean()
        slopes = torch.autograd.grad(inner, list(model.parameters()))
        weight, bias = (p - 0.1 * slope for p, slope in zip(model.parameters(), slopes, strict=True))
        return (F.linear(x, weight, bias) - 1).square().mean()

    return model, step
