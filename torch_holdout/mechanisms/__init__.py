"""Decision rules: host-side integers in, an answer and the next secret state out."""

from torch_holdout.mechanisms.base import Decision, Mechanism, Query, Release
from torch_holdout.mechanisms.known import mechanism_of
from torch_holdout.mechanisms.ladder import Ladder
from torch_holdout.mechanisms.thresholdout import Thresholdout

__all__ = ["Decision", "Ladder", "Mechanism", "Query", "Release", "Thresholdout", "mechanism_of"]
