"""Small holdouts for tests."""

import torch
import torch_holdout as th


def make_holdout(url="memory://", **changes):
    """A holdout of 50 examples with one accuracy, last-guess Thresholdout and budget 5.

    A ``plan`` among the changes decides size, mechanism and budget.
    """
    arguments = {"name": "val", "statistics": {"val_acc": th.ZeroOne()}}
    if "plan" not in changes:
        arguments |= {
            "size": 50,
            "mechanism": th.Thresholdout(threshold=0.05, sigma=0.01, guess="last"),
            "budget": 5,
        }
    return th.ReusableHoldout(url, **{**arguments, **changes})


def sums_of(holdout, values, name="val_acc"):
    """A sealed sum over per-example values."""
    sums = holdout.accumulator(name)
    sums.update(torch.as_tensor(values))
    return sums


def correct(count, size=50):
    """A pass with ``count`` right predictions."""
    return torch.arange(size) < count


def ask(holdout, count, query, **options):
    """Put one query with ``count`` right predictions."""
    sums = sums_of(holdout, correct(count, holdout.size))
    return holdout.release("val_acc", sums, query=query, **options)
