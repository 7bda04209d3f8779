"""Resume a LoRA fine-tuning run from its checkpoint.

    python -m gradkit.cases.resume_lora            goes wrong, in the way that so many resumed runs do
    python -m gradkit.cases.resume_lora --fixed    goes on training

The base model has the architecture of Qwen3, made small enough for a CPU; a token is a byte. Without --resume_from the
first run is made here: two steps, then it is saved. In two commands of your own:

    python -m gradkit.cases.resume_lora --fresh --output_dir runs/first
    python -m gradkit.cases.resume_lora --fixed --resume_from runs/first --output_dir runs/second --epochs 5

    --program input_grads     quiet, because the embeddings are told to require grad: nothing is learned
    --program loss_flag       quiet, because the loss is told to require grad: nothing is learned
    --program loss_per_token  "grad can be implicitly created only for scalar outputs", with the adapter loaded right
    --program running_loss    "Trying to backward through the graph a second time", with the adapter loaded right
    --optimizer_state off     with a new optimizer instead of the saved one: resume_lora_optimizer.py compares them
"""

import argparse
import atexit
import functools
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from gradkit.core.i18n import words

TEXT = Path(__file__).with_name("tidepool.txt")
BLOCK = 64
STATE = "training_state.pt"
CONFIGS = {
    "qwen3-tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    "qwen3-small": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4},
}


def make_base(folder, name="qwen3-tiny"):
    """Stands in for the download: writes a small Qwen3 whose random weights are the same each time."""
    config = Qwen3Config(
        vocab_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=BLOCK,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **CONFIGS[name],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3ForCausalLM(config).save_pretrained(folder)


def choose_device():
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def choose_dtype(device):
    """bfloat16 where the device is fast at it; float16 would need a gradient scaler as well."""
    return torch.bfloat16 if device == "cuda" and torch.cuda.is_bf16_supported() else torch.float32


def load_base(folder):
    device = choose_device()
    return AutoModelForCausalLM.from_pretrained(folder).to(device, choose_dtype(device))


def load_blocks():
    """The text as two batches of byte blocks, each of shape [8, BLOCK] and int64."""
    tokens = torch.tensor(list(TEXT.read_bytes()))
    blocks = tokens[: len(tokens) // BLOCK * BLOCK].view(-1, BLOCK)
    return [{"input_ids": part, "labels": part} for part in blocks[:16].split(8)]


def add_adapter(base):
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=8,
        lora_alpha=16,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    )
    return get_peft_model(load_base(base), config)


def load_checkpoint(base, adapter):
    model = load_base(base)
    model = PeftModel.from_pretrained(model, adapter)
    model.train()
    return model


def load_checkpoint_fixed(base, adapter):
    model = load_base(base)
    model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    model.train()
    return model


def load_checkpoint_input_grads(base, adapter):
    model = load_checkpoint(base, adapter)
    model.enable_input_require_grads()
    return model


def on_device_of(model, batch):
    return {name: tensor.to(model.device) for name, tensor in batch.items()}


def compute_loss(model, batch):
    return model(**on_device_of(model, batch)).loss


def compute_loss_with_flag(model, batch):
    loss = model(**on_device_of(model, batch)).loss
    loss.requires_grad_(True)
    return loss


def compute_loss_per_token(model, batch):
    batch = on_device_of(model, batch)
    logits = model(**batch).logits[:, :-1]
    return F.cross_entropy(logits.transpose(1, 2), batch["labels"][:, 1:], reduction="none")


class RunningLoss:
    """Smooths the loss over the steps, to see its trend."""

    def __init__(self):
        self.mean = None

    def __call__(self, model, batch):
        loss = compute_loss(model, batch)
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss
        return self.mean


PROGRAMS = {  # how the checkpoint is loaded, and what makes the loss
    "broken": (load_checkpoint, lambda: compute_loss),
    "fixed": (load_checkpoint_fixed, lambda: compute_loss),
    "input_grads": (load_checkpoint_input_grads, lambda: compute_loss),
    "loss_flag": (load_checkpoint, lambda: compute_loss_with_flag),
    "loss_per_token": (load_checkpoint_fixed, lambda: compute_loss_per_token),
    "running_loss": (load_checkpoint_fixed, RunningLoss),
}


def train(model, batches, epochs, learning_rate, optimizer=None, loss_of=compute_loss):
    """Returns the loss of every step, before its update."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=learning_rate)
    losses = []
    model.train()
    for _ in range(epochs):
        for batch in batches:
            loss = loss_of(model, batch)
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


def save_checkpoint(folder, model, optimizer):
    """The adapter as peft writes it, and beside it what peft does not keep: optimizer and random state."""
    model.save_pretrained(folder)
    torch.save({"optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}, Path(folder) / STATE)


def load_optimizer(model, folder, learning_rate, saved=True):
    """An optimizer for the resumed run, with the moments of the first one or new; the dice go on where they were."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    if (Path(folder) / STATE).is_file():
        state = torch.load(Path(folder) / STATE, weights_only=True)
        torch.set_rng_state(state["random"])
        if saved:
            optimizer.load_state_dict(state["optimizer"])
            for group in optimizer.param_groups:
                group["lr"] = learning_rate  # the saved state brings its own
    return optimizer


def first_run(base, folder, epochs=1, learning_rate=1e-2):
    """Train a fresh adapter and save it: what lies on disk when a run is resumed. Returns its model and optimizer."""
    model = add_adapter(base)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    train(model, load_blocks(), epochs, learning_rate, optimizer)
    save_checkpoint(folder, model, optimizer)
    return model, optimizer


@functools.cache
def _workspace():
    """A temporary folder that holds the first run, made once and removed when Python ends."""
    holder = tempfile.TemporaryDirectory(prefix="resume_lora_")
    atexit.register(holder.cleanup)
    folder = Path(holder.name)
    make_base(folder / "base")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first_run(folder / "base", folder / "adapter")
    return holder


def make(program="broken"):
    """A resumed run: ``(model, step)``."""
    folder, (load, make_loss) = Path(_workspace().name), PROGRAMS[program]
    model, loss_of, batch = load(folder / "base", folder / "adapter"), make_loss(), load_blocks()[0]

    def step():
        return loss_of(model, batch)

    return model, step


def make_fixed():
    """The resumed run, cured."""
    return make("fixed")


def find_base(name):
    """A local folder with a model, or one of the built-in configurations."""
    if Path(name).is_dir():
        return Path(name)
    folder = Path(_workspace().name)
    if name == "qwen3-tiny":
        return folder / "base"
    make_base(folder / name, name)
    return folder / name


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m gradkit.cases.resume_lora", description=__doc__.splitlines()[0])
    parser.add_argument("--resume_from", type=Path, help="adapter folder of an earlier run (default: make one)")
    parser.add_argument("--output_dir", type=Path, help="where to save the adapter (default: nowhere)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=1e-2)
    parser.add_argument("--model_name", default="qwen3-tiny", help=f"a local folder, or one of: {', '.join(CONFIGS)}")
    parser.add_argument("--program", choices=PROGRAMS, default="broken")
    parser.add_argument("--fixed", dest="program", action="store_const", const="fixed", help="load it the right way")
    parser.add_argument("--fresh", action="store_true", help="begin a run instead of resuming one")
    parser.add_argument("--optimizer_state", choices=["on", "off"], default="on", help="take up the saved optimizer")
    args = parser.parse_args(arguments)
    if not Path(args.model_name).is_dir() and args.model_name not in CONFIGS:
        parser.error(f"--model_name {args.model_name}: no such folder, and none of {', '.join(CONFIGS)}")

    torch.manual_seed(0)
    base, batches, (load, make_loss) = find_base(args.model_name), load_blocks(), PROGRAMS[args.program]
    if args.fresh:
        print(words("case.beginning", name=args.model_name))
        model = add_adapter(base)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    else:
        adapter = args.resume_from or Path(_workspace().name) / "adapter"
        print(words("case.resuming", path=str(adapter)))
        model = load(base, adapter)
        optimizer = load_optimizer(model, adapter, args.learning_rate, saved=args.optimizer_state == "on")
    print(words("case.device", device=str(model.device), dtype=str(model.dtype)))
    model.print_trainable_parameters()
    print(words("case.loss_before", loss=f"{evaluate(model, batches):.4f}"))
    train(model, batches, args.epochs, args.learning_rate, optimizer, make_loss())
    print(words("case.loss_after", loss=f"{evaluate(model, batches):.4f}"))
    if args.output_dir:
        save_checkpoint(args.output_dir, model, optimizer)
        print(words("case.saved", path=str(args.output_dir)))


if __name__ == "__main__":
    main()
