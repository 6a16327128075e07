"""A reason for every refusal of what would couple members."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction import Partition

from support.builders.ensembles import (
    data,
    ensemble,
    fitted,
    records,
    trainer,
)

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gradient_clip_val": 1.0}, "clip_norm="),
        ({"gradient_clip_val": 1.0, "gradient_clip_algorithm": "norm"}, "clip_norm="),
        ({"callbacks": [EarlyStopping("train_loss")]}, "EarlyStopping"),
        (
            {"callbacks": [ModelCheckpoint(monitor="train_loss")], "enable_checkpointing": True},
            "Drop `monitor`",
        ),
        ({"overfit_batches": 1}, "limit_train_batches"),
        ({"detect_anomaly": True}, "detect_anomaly"),
    ],
)
def test_what_would_couple_members_is_refused(options, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        fitted(options=options)


def test_a_gradient_scaler_is_refused():
    from torch_holdout.prediction.ensemble.requirements import require_separate_members

    scaled = trainer()
    scaled.precision_plugin.scaler = object()
    with pytest.raises(InvalidArgumentError, match="bf16-mixed"):
        require_separate_members(scaled)


def test_strategies_that_average_are_refused():
    from torch_holdout.prediction.ensemble.requirements import require_separate_members

    class Many:
        def __getattr__(self, name):
            return getattr(self.real, name)

    many = Many()
    many.real = trainer()
    many.world_size = 2
    with pytest.raises(InvalidArgumentError, match="MemberParallelStrategy"):
        require_separate_members(many)
    many.world_size = 1
    many.strategy = SimpleNamespace(_layer_sync=object())
    with pytest.raises(InvalidArgumentError, match="sync_batchnorm"):
        require_separate_members(many)


def test_schedulers_that_watch_are_refused_and_others_work():
    cosine = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=3)
    fitted(scheduler=cosine)
    fitted(scheduler=lambda o: {"scheduler": cosine(o), "interval": "step"})
    with pytest.raises(InvalidArgumentError, match="ReduceLROnPlateau"):
        fitted(scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau)


def test_a_loss_that_learns_or_returns_many_numbers_is_refused():
    learning = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(InvalidArgumentError, match="learns"):
        ensemble(loss=learning)
    with pytest.raises(InvalidArgumentError, match="one number"):
        fitted(loss=partial(functional.cross_entropy, reduction="none"))


def test_other_batches_are_refused():
    loader = DataLoader(records(), batch_size=4)
    with pytest.raises(InvalidArgumentError, match="PartitionedDataModule"):
        trainer().fit(ensemble(), loader)
    with pytest.raises(InvalidArgumentError, match="same Partition"):
        trainer().fit(ensemble(), datamodule=data(parts=Partition(num_parts=4, seed=8)))
    with pytest.raises(InvalidArgumentError, match="PartitionedDataModule"):
        ensemble().training_step([torch.zeros(4, 6)], 0)
