"""Decision rules: host-side integers in, an answer and the next secret state out; one file each.

A rule opens nothing, stores nothing and charges nothing; it draws only from the noise that a query
brings. Rules for the votes of an ensemble are in ``prediction/mechanisms``.
"""

from torch_holdout.mechanisms.base import Decision, Mechanism, Query, Release
from torch_holdout.mechanisms.effective_rounds import EffectiveRounds
from torch_holdout.mechanisms.gaussian import GaussianMechanism
from torch_holdout.mechanisms.ladder import Ladder
from torch_holdout.mechanisms.laplace import LaplaceMechanism
from torch_holdout.mechanisms.patience import Patience
from torch_holdout.mechanisms.registry import mechanism_of
from torch_holdout.mechanisms.sealed import Sealed
from torch_holdout.mechanisms.sparse_vector import SparseVector
from torch_holdout.mechanisms.thresholdout import Thresholdout

__all__ = [
    "Decision",
    "EffectiveRounds",
    "GaussianMechanism",
    "Ladder",
    "LaplaceMechanism",
    "Mechanism",
    "Patience",
    "Query",
    "Release",
    "Sealed",
    "SparseVector",
    "Thresholdout",
    "mechanism_of",
]

for _name in set(__all__) - {"Mechanism", "mechanism_of"}:
    globals()[_name].__module__ = __name__  # where pickles look for it
