"""What may be asked of a holdout: per-example values in, sealed integer sums out, on the device.

How a sum is answered belongs to ``mechanisms/``; only ``holdout/`` opens one.
"""

from torch_holdout.statistics.blockwise import Blockwise
from torch_holdout.statistics.bounded_mean import (
    BoundedMean,
    CrossEntropy,
    Mode,
    SealedSums,
    Statistic,
    ZeroOne,
)

__all__ = [
    "Blockwise",
    "BoundedMean",
    "CrossEntropy",
    "Mode",
    "SealedSums",
    "Statistic",
    "ZeroOne",
]
