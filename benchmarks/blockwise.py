"""An evaluation with AUROC by blocks behind the door, against plain torchmetrics AUROC."""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch_holdout as th
from torch import Tensor, nn
from torchmetrics.classification import BinaryAUROC

BLOCKS = 50


def data(size: int) -> tuple[Tensor, Tensor]:
    """Return features and labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, 32, generator=generator)
    return x, (x[:, 0] + torch.randn(size, generator=generator) > 0).long()


@torch.no_grad()
def plain(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Evaluate the usual way."""
    metric = BinaryAUROC()
    for batch, target in zip(x.split(1000), y.split(1000), strict=True):
        metric.update(model(batch).squeeze(1), target)
    return float(metric.compute())


@torch.no_grad()
def guarded(model: nn.Module, x: Tensor, y: Tensor, holdout: th.ReusableHoldout) -> float:
    """Evaluate behind the door."""
    metric = th.ReusableHoldoutMetric(holdout, "auroc")
    for batch, target in zip(x.split(1000), y.split(1000), strict=True):
        metric.update(model(batch).squeeze(1), target)
    return float(metric.compute())


def seconds(action: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    """Print one JSON line: ours against torchmetrics, forward pass included."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    repetitions = 3 if parser.parse_args().quick else 9
    size = 100_000
    x, y = data(size)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1)).eval()
    holdout = th.ReusableHoldout(
        "memory://",
        name="val",
        size=size,
        statistics={"auroc": th.Blockwise(BinaryAUROC(), BLOCKS, 0.0, 1.0)},
        mechanism=th.Ladder(step=0.01),
        budget=100,
    )
    guarded(model, x, y, holdout)
    plain(model, x, y)
    pairs = [
        (seconds(lambda: guarded(model, x, y, holdout)), seconds(lambda: plain(model, x, y)))
        for _ in range(repetitions)
    ]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(
        json.dumps(
            {
                "benchmark": "blockwise",
                "case": f"AUROC, {BLOCKS} blocks of {size}",
                "peer": "torchmetrics AUROC",
                "ratio": round(ours / theirs, 3),
                "better": "lower",
                "ours": round(ours, 4),
                "theirs": round(theirs, 4),
                "unit": "s",
            }
        )
    )


if __name__ == "__main__":
    main()
