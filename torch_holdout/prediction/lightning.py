"""Private prediction for ``lightning.pytorch``."""

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy

from torch_holdout.prediction.ensemble.data import PartitionedDataHooks
from torch_holdout.prediction.ensemble.ensemble import PartitionedEnsembleHooks
from torch_holdout.prediction.ensemble.member_parallel import MemberParallelHooks
from torch_holdout.prediction.predictor import PrivatePredictorHooks

__all__ = [
    "MemberParallelStrategy",
    "PartitionedDataModule",
    "PartitionedEnsemble",
    "PrivatePredictor",
]


class PartitionedDataModule(PartitionedDataHooks, LightningDataModule):
    """Serve every member of an ensemble its own part, with ``lightning.pytorch``."""

    __doc__ = PartitionedDataHooks.__init__.__doc__


class PartitionedEnsemble(PartitionedEnsembleHooks, LightningModule):
    """Train one model on each part of the data, with ``lightning.pytorch``."""

    __doc__ = PartitionedEnsembleHooks.__init__.__doc__
    trainer_class = Trainer


class MemberParallelStrategy(MemberParallelHooks, DDPStrategy):
    """Share an ensemble's members between processes, with ``lightning.pytorch``."""

    __doc__ = MemberParallelHooks.__doc__


class PrivatePredictor(PrivatePredictorHooks, LightningModule):
    """Answer queries within a budget, with ``lightning.pytorch``."""

    __doc__ = PrivatePredictorHooks.__init__.__doc__
    module_class = LightningModule
    trainer_class = Trainer
