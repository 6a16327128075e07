"""A holdout in a training loop: the metric and the guard. Answers are decided in ``holdout/``."""

from torch_holdout.training.guesses import fixed_subset as fixed_subset
from torch_holdout.training.metric import ModelReference as ModelReference
from torch_holdout.training.metric import ReusableHoldoutMetric as ReusableHoldoutMetric

_Reference = ModelReference  # as pickles of version 0.1.0 call it
for _public in (ModelReference, ReusableHoldoutMetric):
    _public.__module__ = __name__  # where pickles look for it
