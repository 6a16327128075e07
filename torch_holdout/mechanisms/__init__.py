"""Decision rules: host-side integers in, an answer and the next secret state out."""

from torch_holdout.mechanisms.base import Decision, Mechanism, Query, Release
from torch_holdout.mechanisms.thresholdout import Thresholdout

__all__ = ["Decision", "Mechanism", "Query", "Release", "Thresholdout"]
