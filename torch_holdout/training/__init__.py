"""A holdout in a training loop: the metric and the guard. Answers are decided in ``holdout/``."""

from torch_holdout._fingerprints.cut import Cut as Cut
from torch_holdout._fingerprints.cut import Part as Part
from torch_holdout._fingerprints.cut import Whole as Whole
from torch_holdout.training.guesses import fixed_subset as fixed_subset
from torch_holdout.training.metric import ModelReference as ModelReference
from torch_holdout.training.metric import ReusableHoldoutMetric as ReusableHoldoutMetric
from torch_holdout.training.splits import split as split

_Reference = ModelReference  # as pickles of version 0.1.0 call it
for _public in (ModelReference, ReusableHoldoutMetric, Cut, Part, Whole):
    _public.__module__ = __name__  # where pickles look for it
