"""What may be asked of a holdout: per-example values in, sealed integer sums out, on the device.

How a sum is answered belongs to ``mechanisms/``; only ``holdout/`` opens one.
"""

from torch_holdout.statistics.blockwise import Blockwise as Blockwise
from torch_holdout.statistics.bounded_mean import BoundedMean as BoundedMean
from torch_holdout.statistics.bounded_mean import CrossEntropy as CrossEntropy
from torch_holdout.statistics.bounded_mean import Mode as Mode
from torch_holdout.statistics.bounded_mean import SealedSums as SealedSums
from torch_holdout.statistics.bounded_mean import Statistic as Statistic
from torch_holdout.statistics.bounded_mean import ZeroOne as ZeroOne
