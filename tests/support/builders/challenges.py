"""Sealed holdouts for challenges, and models that are right on some examples."""

import torch
import torch_holdout as th

SIZE = 400


def make_challenged(url="memory://", **changes):
    """A sealed holdout of 400 examples with an accuracy and a loss, and a budget of 20 runs."""
    arguments = {
        "name": "val",
        "size": SIZE,
        "statistics": {"acc": th.ZeroOne(), "loss": th.BoundedMean(0.0, 5.0)},
        "mechanism": th.Sealed(evaluations=1),
        "budget": 20,
    }
    return th.ReusableHoldout(url, **{**arguments, **changes})


def wrong_on(count, size=SIZE):
    """Which examples a model is right on that is wrong on the first ``count``."""
    return torch.arange(size) >= count


def losses(mean, seed=0, size=SIZE):
    """Losses around a mean: the same differences between examples for every mean."""
    noise = torch.rand(size, generator=torch.Generator().manual_seed(seed))
    return mean + noise.double()


def challenged_thrice(holdout, **more):
    """A first model, one that is certainly better, and one that is not."""
    return [
        holdout.challenge("acc", wrong_on(wrong), query=f"wrong on {wrong}", **more)
        for wrong in (100, 40, 39)
    ]
