"""Train on whatever device there is, in mixed precision where it helps: one code path for CPU, CUDA and MPS.

    python -m gradkit.cases.device_aware_amp                             trains, on the best device of this machine
    python -m gradkit.cases.device_aware_amp --program symptom           "does not require grad": see who did it
    python -m gradkit.cases.device_aware_amp --program symptom_branches  with the device branches that were the answer
    python -m gradkit.cases.device_aware_amp --program branches          the device branches alone: AssertionError
    python -m gradkit.cases.device_aware_amp --program logged            quiet again, and nothing is learned
    python -m gradkit.cases.device_aware_amp --program past_the_scaler   steps 65536 times too long
    python -m gradkit.cases.device_aware_amp --program cuda_only         torch.cuda.amp on a machine without CUDA
    python -m gradkit.cases.device_aware_amp --device cuda --record FILE     measures all of them, keeps the numbers

It needs nothing but PyTorch: ``python gradkit/cases/device_aware_amp.py`` does the same.
"""

import argparse
import importlib
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_

WINDOW, FEATURES, HIDDEN, BATCH = 12, 3, 16, 16


class LSTMModule(nn.Module):
    """[batch, WINDOW, FEATURES] -> [batch, WINDOW, HIDDEN], always in float32."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, HIDDEN, batch_first=True)

    def forward(self, bars):
        with torch.autocast(bars.device.type, enabled=False):  # many CPUs have no LSTM in half precision
            return self.lstm(bars.float())[0]


class TransformerModule(nn.Module):
    """[batch, WINDOW, HIDDEN] -> [batch, WINDOW, HIDDEN]"""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(HIDDEN, 2, 2 * HIDDEN, dropout=0.0, batch_first=True)

    def forward(self, states):
        return self.layer(states)


class HybridModel(nn.Module):
    """Does the price rise? [batch, WINDOW, FEATURES] -> logits [batch, 2]"""

    def __init__(self):
        super().__init__()
        self.recurrent, self.attention, self.head = LSTMModule(), TransformerModule(), nn.Linear(HIDDEN, 2)

    def forward(self, bars):
        return self.head(self.attention(self.recurrent(bars)).mean(1))


def load_batches(count=10):
    """Made-up prices that rise or fall under their noise: ``count`` pairs (float32 bars, int64 answers)."""
    dice = torch.Generator().manual_seed(0)
    rising = torch.randint(0, 2, (count * BATCH,), generator=dice)
    moves = 0.35 * (2 * rising[:, None] - 1) + 0.8 * torch.randn(count * BATCH, WINDOW, generator=dice)
    bars = torch.stack([moves, moves.cumsum(1) / 4, moves**2], 2)
    return list(zip(bars.split(BATCH), rising.split(BATCH), strict=True))


@dataclass(frozen=True)
class TrainerConfig:
    device: str = "cpu"
    mixed_precision: bool = True
    epochs: int = 4
    learning_rate: float = 0.05
    gradient_accumulation: int = 2
    max_grad_norm: float = 1.0
    optimizer: str = "SGD"


class TrainingLoop:
    """One code path: what a device does not need is switched off, and the lines stay the same.

    float16 needs the scaler. bfloat16, which is what CPUs have, reaches as far down as float32 and needs none.
    """

    def __init__(self, model, config, train_batches, val_batches=()):
        self.config, self.device = config, torch.device(config.device)
        self.model = model.to(self.device)
        self.train_batches, self.val_batches = train_batches, val_batches
        self.optimizer = getattr(torch.optim, config.optimizer)(self.model.parameters(), lr=config.learning_rate)
        self.half = torch.bfloat16 if self.device.type == "cpu" else torch.float16
        self.scaler = self.make_scaler()

    def make_scaler(self):
        needed = self.config.mixed_precision and self.half is torch.float16
        return torch.amp.GradScaler(self.device.type, enabled=needed)

    def autocast(self):
        return torch.autocast(self.device.type, dtype=self.half, enabled=self.config.mixed_precision)

    def loss(self, batch):
        bars, answers = (part.to(self.device) for part in batch)
        with self.autocast():
            return F.cross_entropy(self.model(bars), answers)

    def backward(self, loss):
        self.scaler.scale(loss / self.config.gradient_accumulation).backward()

    def update(self):
        self.scaler.unscale_(self.optimizer)
        clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def run_epoch(self):
        """Mean loss of the batches."""
        self.model.train()
        total = 0.0
        for step, batch in enumerate(self.train_batches, start=1):
            loss = self.loss(batch)
            self.backward(loss)
            if step % self.config.gradient_accumulation == 0 or step == len(self.train_batches):
                self.update()
            total += loss.item()
        return total / len(self.train_batches)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [self.loss(batch).item() for batch in self.val_batches]
        return sum(losses) / len(losses) if losses else float("nan")

    def fit(self):
        """Mean loss of every epoch."""
        losses = []
        for epoch in range(1, self.config.epochs + 1):
            losses.append(self.run_epoch())
            print(f"  Epoch {epoch}/{self.config.epochs} - Loss: {losses[-1]:.4f}, Val Loss: {self.validate():.4f}")
        return losses


class CudaOnlyLoop(TrainingLoop):
    """Mixed precision by the names that speak of CUDA, whatever the device is."""

    def make_scaler(self):
        return torch.cuda.amp.GradScaler(enabled=self.config.mixed_precision)

    def autocast(self):
        return torch.cuda.amp.autocast(enabled=self.config.mixed_precision)


class DeviceBranches(TrainingLoop):
    """The answer that was found: a scaler made for the CPU, taken for one that is switched off, and branches."""

    def make_scaler(self):
        if self.config.mixed_precision and self.device.type == "cuda":
            return torch.amp.GradScaler("cuda")
        return torch.amp.GradScaler("cpu")

    def autocast(self):
        return torch.autocast("cuda", enabled=self.scaler.is_enabled() and self.device.type == "cuda")

    def backward(self, loss):
        if self.scaler.is_enabled() and self.device.type == "cuda":
            super().backward(loss)
        else:
            (loss / self.config.gradient_accumulation).backward()

    def update(self):
        if self.scaler.is_enabled():
            self.scaler.unscale_(self.optimizer)
        clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()


class ScaledLossLogged(DeviceBranches):
    """The scaler says that it was never used: now the scaled loss is logged, and it is content."""

    def backward(self, loss):
        self.last_scaled_loss = self.scaler.scale(loss).item()
        (loss / self.config.gradient_accumulation).backward()


class PastTheScaler(DeviceBranches):
    """The other way round: the loss is scaled on every device, and the step goes past the scaler."""

    def backward(self, loss):
        self.scaler.scale(loss / self.config.gradient_accumulation).backward()

    def update(self):
        clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()


class CheckedFirst:
    """Validates once before the first epoch, so that a bug in there shows early."""

    def validate(self):
        self.model.eval()
        torch.set_grad_enabled(False)
        if not self.val_batches:
            return 0.0
        losses = [self.loss(batch).item() for batch in self.val_batches]
        torch.set_grad_enabled(True)
        return sum(losses) / len(losses)

    def fit(self):
        print(f"  Before training - Val Loss: {self.validate():.4f}")
        return super().fit()


class Symptom(CheckedFirst, CudaOnlyLoop):
    """As it was first met: CUDA's mixed precision, no validation data, and backward raises."""


class SymptomWithBranches(CheckedFirst, DeviceBranches):
    """The same with the answer that was found."""


PROGRAMS = {
    "fixed": TrainingLoop,
    "cuda_only": CudaOnlyLoop,
    "symptom": Symptom,
    "symptom_branches": SymptomWithBranches,
    "branches": DeviceBranches,
    "logged": ScaledLossLogged,
    "past_the_scaler": PastTheScaler,
}


def build(program="fixed", config=None):
    """The loop of a program, on seeded weights; the symptom's has no validation data."""
    torch.manual_seed(0)
    batches = load_batches()
    val_batches = [] if issubclass(PROGRAMS[program], CheckedFirst) else batches[8:]
    return PROGRAMS[program](HybridModel(), config or TrainerConfig(), batches[:8], val_batches)


def make(program="fixed", config=None):
    """One step of a program, backward and update included: ``(model, step)``."""
    with torch.random.fork_rng(devices=[]):
        loop = build(program, config)

    def step():
        if isinstance(loop, CheckedFirst):
            loop.validate()
            loop.model.train()
            return loop.loss(loop.train_batches[0])  # there is no backward to be had
        loss = loop.loss(loop.train_batches[0])
        loop.backward(loss)
        loop.update()
        return loss

    return loop.model, step


def best_device():
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="device_aware_amp", description=__doc__.splitlines()[0])
    parser.add_argument("--program", choices=PROGRAMS, default="fixed")
    parser.add_argument("--device", choices=["cpu", "cuda", "mps"], default=best_device())
    parser.add_argument("--no_mixed_precision", action="store_true")
    parser.add_argument("--epochs", type=int, default=TrainerConfig.epochs)
    parser.add_argument("--learning_rate", type=float, default=TrainerConfig.learning_rate)
    parser.add_argument("--gradient_accumulation", type=int, default=TrainerConfig.gradient_accumulation)
    parser.add_argument("--max_grad_norm", type=float, default=TrainerConfig.max_grad_norm)
    parser.add_argument("--optimizer", default=TrainerConfig.optimizer, help="a class of torch.optim")
    parser.add_argument("--record", type=Path, help="measure every program, and write the numbers to this JSON file")
    args = parser.parse_args(arguments)
    config = TrainerConfig(
        args.device, not args.no_mixed_precision, args.epochs, args.learning_rate,
        args.gradient_accumulation, args.max_grad_norm, args.optimizer,
    )  # fmt: skip
    if args.record:
        beside = f"{__package__}." if __package__ else ""
        importlib.import_module(f"{beside}device_aware_amp_record").write(args.record, config)
        return
    loop = build(args.program, config)
    print(f"Device: {loop.device}, mixed precision: {config.mixed_precision}, dtype: {loop.half}")
    print(f"GradScaler enabled: {loop.scaler.is_enabled()}")
    losses = loop.fit()
    print(f"Loss went from {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
