"""Mechanisms that turn members' outputs into one private answer; on the device, one file each.

They count, add noise and state the charge. ``prediction/predictor.py`` charges and releases.
"""

from torch_holdout.prediction.mechanisms.base import (
    NO_CONSENSUS,
    OUT_OF_BUDGET,
    PredictionMechanism,
    Setting,
)
from torch_holdout.prediction.mechanisms.gn_max import ConfidentGNMax, GNMax
from torch_holdout.prediction.mechanisms.neighbour_votes import NeighbourVotes
from torch_holdout.prediction.mechanisms.noisy_mean import NoisyMean
from torch_holdout.prediction.mechanisms.permute_and_flip import PermuteAndFlip
from torch_holdout.prediction.mechanisms.soft_majority import SoftMajority
from torch_holdout.prediction.mechanisms.stable_erm import StableERM
from torch_holdout.prediction.mechanisms.votes import vote_table

__all__ = [
    "NO_CONSENSUS",
    "OUT_OF_BUDGET",
    "ConfidentGNMax",
    "GNMax",
    "NeighbourVotes",
    "NoisyMean",
    "PermuteAndFlip",
    "PredictionMechanism",
    "Setting",
    "SoftMajority",
    "StableERM",
    "vote_table",
]
