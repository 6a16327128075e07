"""The tasks of ``sweeps.py``: those of ``quality.py`` by accuracy, with four hyperparameters.

The labels of pictures are clean here: with noisy ones a thousand fresh examples cannot tell .005.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import torch
import torch_holdout as th
from _quality_fits import Guarded, Net
from _quality_tasks import DIGITS, MNIST, TABULAR_HITS, Task, digits, hits, mnist
from torch import Tensor, nn

DISPLAY_LOSS = "display_loss"
_CLEAN = {"statistic": th.ZeroOne(), "values": hits}
TASKS = (
    replace(DIGITS, name="digits, n=500", parts=partial(digits, noisy=0.0), **_CLEAN),
    replace(MNIST, name="MNIST-5k, n=2,000", parts=partial(mnist, noisy=0.0), **_CLEAN),
    replace(TABULAR_HITS, name="tabular, n=10,000"),
)


@final
@dataclass(frozen=True)
class Point:
    """One point of the space.

    Attributes:
        rate: Of AdamW.
        hidden: Units of the one hidden layer.
        dropout: Share of them that is dropped in training.
        decay: Of the weights.
    """

    rate: float
    hidden: int
    dropout: float
    decay: float


def suggested(trial: Any) -> Point:
    """Let the sampler choose; most of the space is poor, and none of it breaks down."""
    return Point(
        rate=trial.suggest_float("rate", 1e-3, 1e-1, log=True),
        hidden=trial.suggest_int("hidden", 32, 256, log=True),
        dropout=trial.suggest_float("dropout", 0.0, 0.5),
        decay=trial.suggest_float("decay", 1e-4, 1.0, log=True),
    )


class _Tuned(Net):
    """A network of the space."""

    def __init__(self, task: Task, inputs: int, point: Point) -> None:
        super().__init__(replace(task, hidden=point.hidden, rate=point.rate), inputs)
        self.layers.insert(2, nn.Dropout(point.dropout))
        self.decay = point.decay

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=self.task.rate, weight_decay=self.decay)


class Plain(_Tuned):
    """Logs the raw accuracy of the holdout."""


class Careful(_Tuned, Guarded):
    """Returns the holdout's values to a guard; the display's loss may be watched."""

    def validation_step(
        self, batch: tuple[Tensor, Tensor], _: int, dataloader_idx: int = 0
    ) -> dict[str, Tensor] | None:
        """Return the holdout's values, or log the display's loss."""
        if dataloader_idx == 0:
            return super().validation_step(batch, _)
        loss = self.task.loss(self.layers(batch[0]), batch[1])
        self.log(DISPLAY_LOSS, loss, add_dataloader_idx=False)
        return None
