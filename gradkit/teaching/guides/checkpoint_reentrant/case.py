"""DNA: a frozen table of bases, a block that should learn and is checkpointed to save memory, and a head."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class DnaReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.bases = nn.Embedding(4, 8).requires_grad_(False)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 2)

    # [wrong]
    def forward(self, dna):
        h = self.bases(dna)
        h = checkpoint(self.block, h, use_reentrant=True)  # CUT
        return self.head(h.mean(dim=1))
    # [end]


class FixedDnaReader(DnaReader):
    # [fixed]
    def forward(self, dna):
        h = self.bases(dna)
        h = checkpoint(self.block, h, use_reentrant=False)
        return self.head(h.mean(dim=1))
    # [end]


class PlainDnaReader(DnaReader):
    def forward(self, dna):
        return self.head(self.block(self.bases(dna)).mean(dim=1))


# [hook]
def embedding_requires_grad(model):
    model.bases.register_forward_hook(lambda _, args, out: out.requires_grad_(True))
# [end]


def program(kind):
    torch.manual_seed(0)
    model, dna, gene = kind(), torch.randint(0, 4, (6, 20)), torch.randint(0, 2, (6,))
    return model, lambda: nn.functional.cross_entropy(model(dna), gene)


def make():
    return program(DnaReader)


FAILS = "partial"


def make_fixed():
    return program(FixedDnaReader)


# [see]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


BLOCK = ["block.0.weight", "block.0.bias"]


# [verify]
def same_gradients(model, step, other, other_step):
    step().backward()
    other_step().backward()
    pairs = zip(model.parameters(), other.parameters())
    return all(torch.allclose(p.grad, q.grad) for p, q in pairs if p.requires_grad)
# [end]


def experiment_only_a_warning_and_a_falling_loss_while_the_block_starves():
    model, step = make()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        first, optimizer = step().item(), torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            assert starved(model, step) == BLOCK
            optimizer.step()
        assert step().item() < first
    assert any("None of the inputs have requires_grad=True" in str(warning.message) for warning in seen)


def experiment_with_a_frozen_head_backward_raises():
    model, step = make()
    model.head.requires_grad_(False)
    try:
        step().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_a_frozen_table_gives_an_input_without_a_gradient():
    assert not make()[0].bases(torch.tensor([0])).requires_grad


def experiment_the_block_runs_with_grad_mode_off():
    modes = []
    model, step = make()
    model.block.register_forward_hook(lambda *_: modes.append(torch.is_grad_enabled()))
    step()
    assert modes == [False]


def experiment_an_input_that_requires_grad_cures_reentrant_too():
    model, step = make()
    embedding_requires_grad(model)
    assert starved(model, step) == []


def reading_model(reentrant):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=4, **sizes)).train()
    model.get_input_embeddings().requires_grad_(False)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.get_input_embeddings()._forward_hooks.clear()
    dna = torch.randint(0, 4, (2, 6))
    return model, lambda: model(input_ids=dna, labels=dna, use_cache=False).loss


def experiment_transformers_has_a_switch_for_either_cure():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, step = reading_model(reentrant=True)
        assert len(starved(model, step)) > 5
        model.enable_input_require_grads()
        assert starved(model, step) == []
        assert starved(*reading_model(reentrant=False)) == []


def experiment_the_cure_gives_the_gradients_of_a_run_without_checkpointing():
    assert starved(*make_fixed()) == []
    assert same_gradients(*make_fixed(), *program(PlainDnaReader))


def experiment_leaving_the_flag_out_means_reentrant():
    model, _ = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = checkpoint(model.block, model.bases(torch.tensor([0])))
    assert not out.requires_grad


def experiment_train_mode_and_flags_have_no_say():
    model, step = make()
    model.train()
    model.block.requires_grad_(True)
    assert starved(model, step) == BLOCK


def experiment_with_a_trainable_table_reentrant_works():
    model, step = make()
    model.bases.requires_grad_(True)
    assert starved(model, step) == []
