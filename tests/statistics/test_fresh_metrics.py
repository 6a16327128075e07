"""Metrics of torchmetrics are used again for the next block; nothing of one block reaches it."""

import pytest
import torch
import torch_holdout as th
from torch_holdout.holdout.columns import holdout_columns
from torch_holdout.statistics.fresh_metrics import FreshMetrics, reset_forgets
from torchmetrics import MeanMetric, Metric, MinMaxMetric
from torchmetrics.classification import BinaryAUROC, MulticlassF1Score
from torchmetrics.regression import PearsonCorrCoef

CPU = torch.device("cpu")
ROWS = 3000


def rows(seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(ROWS, generator=generator)
    return scores, (scores + torch.randn(ROWS, generator=generator) > 0).long()


class Remembers(Metric):
    """A user's metric with a list that ``reset`` knows nothing of."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def update(self, preds, target):
        self.seen.append(preds.sum())

    def compute(self):
        return torch.stack(self.seen).sum()


def levels_of_copies(metric, columns, blocks):
    """Each block by a copy of its own, as it was made."""
    statistic = th.Blockwise(metric, blocks, -500.0, 500.0)
    values = []
    for block in statistic._cut(ROWS):
        own = metric.clone()
        own.update(*(column[block] for column in columns))
        values.append(float(own.compute()))
    return statistic._quantise(torch.tensor(values, dtype=torch.float64), 65536)


@pytest.mark.parametrize(
    "metric", [BinaryAUROC(), BinaryAUROC(thresholds=20), PearsonCorrCoef(), Remembers()]
)
def test_every_block_has_the_value_of_a_copy(metric):
    columns = rows() if not isinstance(metric, PearsonCorrCoef) else (rows()[0], rows(1)[0])
    statistic = th.Blockwise(metric, 20, -500.0, 500.0)
    assert torch.equal(statistic.levels(columns, 65536), levels_of_copies(metric, columns, 20))


def test_a_twin_that_always_uses_a_metric_again_is_caught(monkeypatch):
    columns = rows()
    expected = levels_of_copies(Remembers(), columns, 20)
    monkeypatch.setattr(
        "torch_holdout.statistics.fresh_metrics.reset_forgets", lambda used, made: True
    )
    twin = th.Blockwise(Remembers(), 20, -500.0, 500.0)
    assert not torch.equal(twin.levels(columns, 65536), expected)


def test_which_metrics_are_used_again():
    for metric in (BinaryAUROC(), PearsonCorrCoef(), MeanMetric()):
        assert reset_forgets(metric.clone(), metric)
    for metric in (Remembers(), MinMaxMetric(MeanMetric()), BinaryAUROC(thresholds=5)):
        assert not reset_forgets(metric.clone(), metric)
    changed = BinaryAUROC()
    changed.max_fpr = 0.5  # a setting that a block has changed, or one that it has added
    assert not reset_forgets(changed, BinaryAUROC())
    changed = MulticlassF1Score(num_classes=3)
    changed.found = 1
    assert not reset_forgets(changed, MulticlassF1Score(num_classes=3))


def test_a_metric_that_failed_is_not_used_again():
    fresh = FreshMetrics(BinaryAUROC(), CPU)
    first = fresh.take()
    assert fresh.take() is not first  # it was never put back
    fresh.put_back(first)
    assert fresh.take() is first


def test_rows_of_a_whole_pass_are_kept_once():
    """What the blocks are cut from is the memory that batches were written to."""
    scores, target = rows()
    statistic = th.Blockwise(BinaryAUROC(), 20, 0.0, 1.0)
    sums = statistic.accumulator(resolution=65536, size=ROWS)
    with torch.inference_mode():
        sums.update(scores[:1000] + 0, target[:1000])
    buffer = scores[1000:].clone()
    sums.update(buffer, target[1000:])
    buffer.zero_()
    columns = holdout_columns(sums, copied=False)
    assert [column.data_ptr() for column in columns] == [r.data_ptr() for r in sums._room]
    assert torch.equal(columns[0], scores)
    assert torch.equal(columns[1], target)


def test_more_rows_than_registered_are_all_there():
    scores, target = rows()
    sums = th.Blockwise(BinaryAUROC(), 20, 0.0, 1.0).accumulator(resolution=65536, size=1500)
    for part in (slice(0, 1000), slice(1000, 2000), slice(2000, 2100), slice(2100, ROWS)):
        sums.update(scores[part], target[part])
    columns = holdout_columns(sums, copied=True)  # as many as came
    assert torch.equal(columns[0], scores)
    assert torch.equal(columns[1], target)
