"""Resume a LoRA fine-tuning run from its checkpoint.

    python -m gradkit.cases.resume_lora            goes wrong, in the way that so many resumed runs do
    python -m gradkit.cases.resume_lora --fixed    goes on training

The base model has the architecture of Qwen3, made small enough for a CPU; a token is a byte. Without --resume_from the
first run is made here: two steps, then save_pretrained.
"""

import argparse
import atexit
import functools
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

TEXT = Path(__file__).with_name("tidepool.txt")
BLOCK = 64


def make_base(folder):
    """Stands in for the download: writes a small Qwen3 with random weights."""
    config = Qwen3Config(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=BLOCK,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


def load_blocks():
    """The text as two batches of byte blocks, each of shape [8, BLOCK] and int64."""
    tokens = torch.tensor(list(TEXT.read_bytes()))
    blocks = tokens[: len(tokens) // BLOCK * BLOCK].view(-1, BLOCK)
    return [{"input_ids": part, "labels": part} for part in blocks[:16].split(8)]


def first_run(folder, learning_rate=1e-2):
    """Train a fresh adapter for two steps and save it: what lies on disk when a run is resumed."""
    make_base(folder / "base")
    model = AutoModelForCausalLM.from_pretrained(folder / "base")
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=8,
        lora_alpha=16,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    )
    model = get_peft_model(model, config)
    train(model, load_blocks(), epochs=1, learning_rate=learning_rate)
    model.save_pretrained(folder / "adapter")
    return folder / "adapter"


def load_checkpoint(base, adapter):
    model = AutoModelForCausalLM.from_pretrained(base)
    model = PeftModel.from_pretrained(model, adapter)
    model.train()
    return model


def load_checkpoint_fixed(base, adapter):
    model = AutoModelForCausalLM.from_pretrained(base)
    model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    model.train()
    return model


def compute_loss(model, batch):
    return model(**batch).loss


def train(model, batches, epochs, learning_rate):
    """Returns the loss of every step, before its update."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    losses = []
    model.train()
    for _ in range(epochs):
        for batch in batches:
            loss = compute_loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@torch.no_grad()
def evaluate(model, batches):
    """Mean loss over the batches, without dropout."""
    model.eval()
    return sum(compute_loss(model, batch).item() for batch in batches) / len(batches)


@functools.cache
def _workspace():
    """A temporary folder that holds the first run, made once and removed when Python ends."""
    holder = tempfile.TemporaryDirectory(prefix="resume_lora_")
    atexit.register(holder.cleanup)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first_run(Path(holder.name))
    return holder


def make():
    """The resumed run, gone wrong: ``(model, step)``."""
    folder = Path(_workspace().name)
    model = load_checkpoint(folder / "base", folder / "adapter")
    batch = load_blocks()[0]

    def step():
        return compute_loss(model, batch)

    return model, step


def make_fixed():
    """The resumed run, cured."""
    folder = Path(_workspace().name)
    model = load_checkpoint_fixed(folder / "base", folder / "adapter")
    batch = load_blocks()[0]

    def step():
        return compute_loss(model, batch)

    return model, step


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m gradkit.cases.resume_lora", description=__doc__.splitlines()[0])
    parser.add_argument("--resume_from", type=Path, help="adapter folder of an earlier run (default: make one)")
    parser.add_argument("--output_dir", type=Path, help="where to save the adapter (default: nowhere)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=1e-2)
    parser.add_argument("--fixed", action="store_true", help="load the adapter in the right way")
    args = parser.parse_args(arguments)

    torch.manual_seed(0)
    folder = Path(_workspace().name)
    adapter = args.resume_from or folder / "adapter"
    print(f"Resuming from {adapter}")
    load = load_checkpoint_fixed if args.fixed else load_checkpoint
    model = load(folder / "base", adapter)
    model.print_trainable_parameters()

    batches = load_blocks()
    print(f"loss before: {evaluate(model, batches):.4f}")
    train(model, batches, args.epochs, args.learning_rate)
    print(f"loss after:  {evaluate(model, batches):.4f}")
    if args.output_dir:
        model.save_pretrained(args.output_dir)
        print(f"Saved to {args.output_dir}")


if __name__ == "__main__":
    main()
