"""A metric of one accuracy, and a pass over its holdout."""

import torch_holdout as th

from support.builders.holdouts import correct, make_holdout

EXACT = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")
SIZE = 97  # accuracies k/97 are not on the answer grid of 64ths
RAW = 71 / SIZE


def make_metric(model=None, *, holdout=None, **options):
    holdout = holdout or make_holdout(size=SIZE, budget=20)
    return th.ReusableHoldoutMetric(holdout, "val_acc", model=model, **options)


def run_pass(metric, count=71, batch=10):
    for values in correct(count, SIZE).split(batch):
        metric.update(values)
    return metric.compute()
