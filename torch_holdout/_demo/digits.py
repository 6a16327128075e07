"""Early stopping on a guarded validation loss: digits with 30 % label noise."""

import logging
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import torch_holdout as th
from torch_holdout._noise.fixed import coin_flips, fixed_integers, fixed_permutation, normal_numbers

EXAMPLES, PIXELS = 1797, 64
TRAIN, HOLDOUT = 400, 700
CLASSES = 10
WORST = 5.0
BLUR = 0.7  # makes generated patterns about as hard to tell apart as the digits


@final
@dataclass(frozen=True)
class Epoch:
    """The values published after an epoch, beside those on fresh data."""

    number: int
    published: float
    kind: str
    budget_left: int
    fresh: float


@final
@dataclass(frozen=True)
class Run:
    """The epochs of a run and its holdout."""

    epochs: list[Epoch]
    holdout: th.ReusableHoldout

    @property
    def chosen(self) -> Epoch:
        """The epoch with the best *released* value: only releases may be claimed."""
        return min((e for e in self.epochs if e.kind == "release"), key=lambda e: e.published)


def splits(seed: int = 0) -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """Return training, holdout and fresh digits; 30 % of all labels are replaced at random."""
    pictures, names = _real_digits() if has_digits() else _generated_digits()
    order = fixed_permutation(len(names), seed)
    x, y = pictures[order], names[order]
    bits = coin_flips((len(y), 20), seed + 1).long()
    weights = 2 ** torch.arange(10)
    noisy = bits[:, :10] @ weights < 0.3 * 1024
    y = torch.where(noisy, (bits[:, 10:] @ weights) % CLASSES, y)
    cuts = (slice(TRAIN), slice(TRAIN, TRAIN + HOLDOUT), slice(TRAIN + HOLDOUT, None))
    train, holdout, fresh = (TensorDataset(x[cut], y[cut]) for cut in cuts)
    return train, holdout, fresh


def has_digits() -> bool:
    """Whether scikit-learn is installed, for its digits; without it patterns are generated."""
    return find_spec("sklearn") is not None


def _real_digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.tensor(bunch.data, dtype=torch.float32) / 16
    return x, torch.tensor(bunch.target, dtype=torch.long)


def _generated_digits() -> tuple[Tensor, Tensor]:
    """Return as many pictures of ten fixed patterns, each with noise of its own."""
    y = fixed_integers(CLASSES, (EXAMPLES,), seed=1)
    patterns = coin_flips((CLASSES, PIXELS), seed=2).float()
    noise = normal_numbers((EXAMPLES, PIXELS), seed=3)
    return (patterns[y] + BLUR * noise).clamp(0, 1), y


def early_stopping(ledger: str, *, epochs: int = 60, progress: bool = True, seed: int = 0) -> Run:
    """Train a small network and stop on the guarded loss; print nothing but the progress bar."""
    import pytorch_lightning as pl
    from torch_holdout.pytorch_lightning import HoldoutGuard

    warnings.filterwarnings("ignore", module="pytorch_lightning")
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    pl.seed_everything(seed, verbose=False)
    train, val, fresh = splits(seed)
    holdout = th.ReusableHoldout(
        ledger,
        name="digits-val",
        size=len(val),
        statistics={"val_loss": th.CrossEntropy(WORST)},
        mechanism=th.Thresholdout(threshold=0.015, sigma=0.002, guess="last"),
        budget=20,
        fingerprint=th.fingerprint(val),
    )
    guard = HoldoutGuard(holdout, run="demo")
    recorder = _recorder(pl, guard, fresh)
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=[guard, pl.callbacks.EarlyStopping("val_loss", patience=12), recorder],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=progress,
        accelerator="auto",
        devices=1,
    )
    trainer.fit(
        _network(pl),
        DataLoader(train, batch_size=50, shuffle=True),
        DataLoader(val, batch_size=200),
    )
    return Run(recorder.epochs, holdout)


def _network(pl: Any) -> Any:
    class Net(pl.LightningModule):  # type: ignore[misc]
        """A network large enough to learn the wrong labels by heart."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, CLASSES))

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            """Learn from the noisy labels."""
            return functional.cross_entropy(self.layers(batch[0]), batch[1])

        def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> dict[str, Any]:
            """Hand predictions and labels to the guard; log nothing."""
            return {"val_loss": (self.layers(batch[0]), batch[1])}

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Return Adam."""
            return torch.optim.Adam(self.parameters(), lr=4e-3)

    return Net()


def _recorder(pl: Any, guard: Any, fresh: TensorDataset) -> Any:
    class Recorder(pl.Callback):  # type: ignore[misc]
        """Record what was published, and the value on fresh data."""

        def __init__(self) -> None:
            self.epochs: list[Epoch] = []

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            """Look once per epoch, after the guard has published."""
            if trainer.sanity_checking:
                return
            answer = guard.answers["val_loss"]
            x, y = (t.to(pl_module.device) for t in fresh.tensors)
            with torch.no_grad():
                losses = functional.cross_entropy(pl_module.layers(x), y, reduction="none")
            truth = float(losses.clamp(0, WORST).mean())
            number = trainer.current_epoch + 1
            self.epochs.append(Epoch(number, answer.value, answer.kind, answer.budget_left, truth))

    return Recorder()
