"""A holdout in a training loop: the metric, and the guard that Lightning's packages bind.

It accumulates and publishes; what is answered is decided in ``holdout/``.
"""

from torch_holdout.training.metric import ReusableHoldoutMetric as ReusableHoldoutMetric
from torch_holdout.training.subsets import fixed_subset as fixed_subset
