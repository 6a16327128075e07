"""Private prediction: members on disjoint parts of sensitive records, one paid answer per query.

The training records are protected, from anyone who asks; ``holdout/`` protects a validation set
from the analyst. Only ``prediction/predictor.py`` lets an answer out, after it has been charged.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_holdout.prediction.budget import PrivacyBudget as PrivacyBudget
    from torch_holdout.prediction.distillation import Distilled as Distilled
    from torch_holdout.prediction.distillation import distill as distill
    from torch_holdout.prediction.ensemble.isolation import Isolation as Isolation
    from torch_holdout.prediction.ensemble.isolation import verify_isolation as verify_isolation
    from torch_holdout.prediction.mechanisms import ConfidentGNMax as ConfidentGNMax
    from torch_holdout.prediction.mechanisms import GNMax as GNMax
    from torch_holdout.prediction.mechanisms import NeighbourVotes as NeighbourVotes
    from torch_holdout.prediction.mechanisms import NoisyMean as NoisyMean
    from torch_holdout.prediction.mechanisms import PermuteAndFlip as PermuteAndFlip
    from torch_holdout.prediction.mechanisms import SoftMajority as SoftMajority
    from torch_holdout.prediction.mechanisms import StableERM as StableERM
    from torch_holdout.prediction.nearest.embedded_records import (
        EmbeddedRecords as EmbeddedRecords,
    )
    from torch_holdout.prediction.neighbours import Neighbours as Neighbours
    from torch_holdout.prediction.partition import Partition as Partition
    from torch_holdout.prediction.pytorch_lightning import (
        MemberParallelStrategy as MemberParallelStrategy,
    )
    from torch_holdout.prediction.pytorch_lightning import (
        PartitionedDataModule as PartitionedDataModule,
    )
    from torch_holdout.prediction.pytorch_lightning import (
        PartitionedEnsemble as PartitionedEnsemble,
    )
    from torch_holdout.prediction.pytorch_lightning import (
        PrivatePredictor as PrivatePredictor,
    )
    from torch_holdout.prediction.stable.model import StableModel as StableModel
    from torch_holdout.prediction.stable.model import fit_stable_model as fit_stable_model
    from torch_holdout.prediction.status import PredictionPlan as PredictionPlan
    from torch_holdout.prediction.status import PredictionStatus as PredictionStatus

_BOUND = "bound to the Lightning package that is installed"
_FILES = {
    _BOUND: "MemberParallelStrategy PartitionedDataModule PartitionedEnsemble PrivatePredictor",
    "budget": "PrivacyBudget",
    "distillation": "Distilled distill",
    "ensemble.isolation": "Isolation verify_isolation",
    "mechanisms": "ConfidentGNMax GNMax NeighbourVotes NoisyMean PermuteAndFlip SoftMajority "
    "StableERM",
    "nearest.embedded_records": "EmbeddedRecords",
    "neighbours": "Neighbours",
    "partition": "Partition",
    "stable.model": "StableModel fit_stable_model",
    "status": "PredictionPlan PredictionStatus",
}
_HOME = {name: file for file, names in _FILES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'torch_holdout.prediction' has no attribute {name!r}")
    home = _HOME[name]
    if home == _BOUND:
        home = "pytorch_lightning" if find_spec("lightning") is None else "lightning"
    value = getattr(import_module(f"torch_holdout.prediction.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
