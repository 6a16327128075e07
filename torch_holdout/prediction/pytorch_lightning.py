"""Private prediction for ``pytorch_lightning``."""

from pytorch_lightning.strategies import DDPStrategy

from pytorch_lightning import LightningDataModule, LightningModule, Trainer
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
    """Serve every member of an ensemble its own part, with ``pytorch_lightning``."""

    __doc__ = PartitionedDataHooks.__init__.__doc__


class PartitionedEnsemble(PartitionedEnsembleHooks, LightningModule):
    """Train one model on each part of the data, with ``pytorch_lightning``."""

    __doc__ = PartitionedEnsembleHooks.__init__.__doc__
    trainer_class = Trainer


class MemberParallelStrategy(MemberParallelHooks, DDPStrategy):
    """Share an ensemble's members between processes, with ``pytorch_lightning``."""

    __doc__ = MemberParallelHooks.__doc__


class PrivatePredictor(PrivatePredictorHooks, LightningModule):
    """Answer queries within a budget, with ``pytorch_lightning``."""

    __doc__ = PrivatePredictorHooks.__init__.__doc__
    module_class = LightningModule
    trainer_class = Trainer
