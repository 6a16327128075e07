"""Private prediction for ``lightning.pytorch``."""

from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy

from torch_holdout.prediction.data import PartitionedDataHooks
from torch_holdout.prediction.ensemble import PartitionedEnsembleHooks
from torch_holdout.prediction.member_parallel import MemberParallelHooks
from torch_holdout.prediction.predictor import PrivatePredictorHooks

__all__ = [
    "MemberParallelStrategy",
    "PartitionedDataModule",
    "PartitionedEnsemble",
    "PrivatePredictor",
]


class PartitionedDataModule(PartitionedDataHooks, LightningDataModule):
    """Serve every member its own part; arguments are ``PartitionedDataHooks``'."""


class PartitionedEnsemble(PartitionedEnsembleHooks, LightningModule):
    """Train one model on each part of the data; arguments are ``PartitionedEnsembleHooks``'."""

    @classmethod
    def _trainer_type(cls) -> Any:
        return Trainer


class MemberParallelStrategy(MemberParallelHooks, DDPStrategy):
    """Share an ensemble's members between processes; see ``MemberParallelHooks``."""


class PrivatePredictor(PrivatePredictorHooks, LightningModule):
    """Answer queries within a budget; arguments are ``PrivatePredictorHooks``'."""

    module_class = LightningModule
    trainer_class = Trainer
