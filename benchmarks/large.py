"""Ten million examples, a hundred million weights: what is kept in memory, and how long copying is.

One thread. Memory is that of the process after ten million examples, less what it was after one
million. A sealed run copies the weights in every evaluation; so would one who keeps the best.
"""

import resource
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch_holdout as th
from _measure import asked_quick, medians, report, timed
from torch import nn
from torch_holdout.training.best_weights import TwoBuffers

BATCH = 10_000


def resident() -> int:
    """Return how much memory the process has now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def growth(statistic: th.BoundedMean | th.Blockwise, examples: int) -> int:
    """Return how much memory the last nine tenths of a pass have taken."""
    values, target = torch.rand(BATCH), torch.ones(BATCH, dtype=torch.int64)
    batch = (values, target) if isinstance(statistic, th.Blockwise) else (values,)
    door = th.ReusableHoldout(
        "memory://", name="val", size=examples, statistics={"value": statistic},
        mechanism=th.Ladder(step=0.01), budget=3,
    )  # fmt: skip
    metric = th.ReusableHoldoutMetric(door, "value")
    before = 0
    for number in range(examples // BATCH):
        if number == examples // BATCH // 10:
            before = resident()
        metric.update(*batch)
    metric.compute()
    return max(0, resident() - before)


def share_of_ones(values: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return a number that is no mean of examples."""
    return (values * target).mean()


def evaluation(kept: TwoBuffers, model: nn.Module) -> None:
    """Copy the weights and exchange the buffers, as an evaluation that was better does."""
    passed: Any = SimpleNamespace(evaluation=SimpleNamespace(number=1), better=True)
    kept.copy(model)
    kept.judge(passed, "run")


def clone(model: nn.Module) -> list[torch.Tensor]:
    """Clone all weights."""
    return [parameter.detach().clone() for parameter in model.parameters()]


def main() -> None:
    """Print one JSON line for each claim."""
    quick = asked_quick(__doc__)
    torch.set_num_threads(1)
    examples, millions = (1_000_000, 25) if quick else (10_000_000, 100)
    for name, statistic, peer, size in (
        ("a mean", th.BoundedMean(0.0, 1.0), "the values", 4),
        ("by 50 blocks", th.Blockwise(share_of_ones, 50, 0.0, 1.0), "the rows", 12),
    ):
        case = f"{examples:,} examples streamed, {name}"
        theirs = 0.9 * size * examples
        line = partial(report, "large", case=case, unit="bytes", yardstick=True)
        line(peer=f"{peer}, once", ours=growth(statistic, examples), theirs=theirs)
    model = nn.Sequential(*[nn.Linear(1000, 1000, bias=False) for _ in range(millions)])
    kept = TwoBuffers(whole=True)
    ours, theirs = medians(
        timed(lambda: evaluation(kept, model), time.process_time),
        timed(lambda: clone(model), time.process_time),
        repetitions=3 if quick else 9,
    )
    case = f"{millions} million weights, kept after an evaluation"
    report("large", case=case, peer="one clone", ours=ours, theirs=theirs, unit="CPU s")


if __name__ == "__main__":
    main()
