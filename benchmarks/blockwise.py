"""An evaluation with AUROC by blocks behind the door, against torchmetrics AUROC; CPU time."""

import tempfile
import time

import torch
import torch_holdout as th
from _measure import asked_quick, medians, report, timed
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import BinaryAUROC

SIZE, BLOCKS = 100_000, 50


def data(size: int) -> tuple[Tensor, Tensor]:
    """Return features and labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, 32, generator=generator)
    return x, (x[:, 0] + torch.randn(size, generator=generator) > 0).long()


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor, metric: Metric) -> float:
    """Evaluate batch by batch, the forward pass included."""
    for batch, target in zip(x.split(1000), y.split(1000), strict=True):
        metric.update(model(batch).squeeze(1), target)
    return float(metric.compute())


def holdout(folder: str) -> th.ReusableHoldout:
    """Return a holdout with an SQLite ledger, as one would use it."""
    return th.ReusableHoldout(
        f"sqlite:///{folder}/holdout.db",
        name="val",
        size=SIZE,
        statistics={"auroc": th.Blockwise(BinaryAUROC(), BLOCKS, 0.0, 1.0)},
        mechanism=th.Ladder(step=0.01),
        budget=100,
    )


def main() -> None:
    """Print one JSON line: ours against torchmetrics, forward pass included."""
    repetitions = 3 if asked_quick(__doc__) else 9
    torch.set_num_threads(1)
    x, y = data(SIZE)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1)).eval()
    with tempfile.TemporaryDirectory() as folder:
        door, clock = holdout(folder), time.process_time
        ours, theirs = medians(
            timed(lambda: evaluate(model, x, y, th.ReusableHoldoutMetric(door, "auroc")), clock),
            timed(lambda: evaluate(model, x, y, BinaryAUROC()), clock),
            repetitions=repetitions,
        )
    case, peer = f"AUROC, {BLOCKS} blocks of {SIZE}", "torchmetrics AUROC"
    report("blockwise", case=case, peer=peer, ours=ours, theirs=theirs, unit="CPU s")


if __name__ == "__main__":
    main()
