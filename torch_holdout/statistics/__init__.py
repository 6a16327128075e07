"""Statistics: per-example values in, sealed integer sums out; only ``holdout/`` opens them."""

from torch_holdout.statistics.base import Mode as Mode
from torch_holdout.statistics.base import Statistic as Statistic
from torch_holdout.statistics.blockwise import Blockwise as Blockwise
from torch_holdout.statistics.bounded_mean import BoundedMean as BoundedMean
from torch_holdout.statistics.bounded_mean import CrossEntropy as CrossEntropy
from torch_holdout.statistics.bounded_mean import ZeroOne as ZeroOne
from torch_holdout.statistics.bounded_mean import _cross_entropy as _cross_entropy  # old pickles
from torch_holdout.statistics.grouped_mean import GroupedMean as GroupedMean
from torch_holdout.statistics.logged_mean import LoggedMean as LoggedMean
from torch_holdout.statistics.ratio import Ratio as Ratio
from torch_holdout.statistics.sealed_sums import SealedSums as SealedSums

for _public in (Blockwise, BoundedMean, CrossEntropy, GroupedMean, LoggedMean, Ratio, ZeroOne):
    _public.__module__ = __name__  # where pickles look for it
