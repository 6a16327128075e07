"""Private prediction for ``lightning.pytorch``."""

from typing import Any

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
    """Serve every member its own part; arguments are ``PartitionedDataHooks``'.

    Example:
        >>> import torch
        >>> from torch_holdout.prediction import Partition
        >>> records = torch.utils.data.TensorDataset(torch.zeros(100, 3), torch.zeros(100))
        >>> parts = Partition(num_parts=5, key="index", seed=7)
        >>> data = PartitionedDataModule(records, parts, batch_size=4, steps_per_epoch=10)
        >>> sum(len(part) for part in data.assignment()), len(data.train_dataloader())
        (100, 10)
    """


class PartitionedEnsemble(PartitionedEnsembleHooks, LightningModule):
    """Train one model on each part of the data; arguments are ``PartitionedEnsembleHooks``'.

    Example:
        >>> from functools import partial
        >>> import torch
        >>> from torch_holdout.prediction import Partition
        >>> ensemble = PartitionedEnsemble(
        ...     lambda: torch.nn.Linear(8, 3), Partition(num_parts=50, key="index", seed=7),
        ...     loss=torch.nn.functional.cross_entropy, optimizer=partial(torch.optim.SGD, lr=0.1))
        >>> ensemble.num_parts
        50
    """

    @classmethod
    def _trainer_type(cls) -> Any:
        return Trainer


class MemberParallelStrategy(MemberParallelHooks, DDPStrategy):
    """Share an ensemble's members between processes; see ``MemberParallelHooks``.

    Example:
        >>> MemberParallelStrategy().members(num_parts=5)  # of one process: all
        range(0, 5)
    """


class PrivatePredictor(PrivatePredictorHooks, LightningModule):
    """Answer queries within a budget; arguments are ``PrivatePredictorHooks``'.

    Example:
        >>> from functools import partial
        >>> import torch
        >>> from torch_holdout.prediction import Partition, PrivacyBudget, SoftMajority
        >>> ensemble = PartitionedEnsemble(
        ...     lambda: torch.nn.Linear(8, 3), Partition(num_parts=50, key="index", seed=7),
        ...     loss=torch.nn.functional.cross_entropy, optimizer=partial(torch.optim.SGD, lr=0.1))
        >>> predictor = PrivatePredictor(
        ...     ensemble, SoftMajority(eta=0.1), budget=PrivacyBudget(epsilon=2.0, delta=1e-5),
        ...     ledger="memory://", name="records")
        >>> predictor(torch.zeros(4, 8)).shape, predictor.status().queries
        (torch.Size([4]), 4)
    """

    module_class = LightningModule
    trainer_class = Trainer
