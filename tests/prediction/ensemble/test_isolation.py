"""One record changes one member, bit for bit; whatever breaks that is caught."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_holdout.errors import HoldoutError, InvalidArgumentError, IsolationError
from torch_holdout.prediction import Partition
from torch_holdout.prediction.ensemble.batches import PartSampler
from torch_holdout.prediction.lightning import PartitionedDataModule

import pytorch_lightning
from support.builders.ensembles import (
    ADAM,
    SGD,
    batch_norm,
    data,
    dropping,
    ensemble,
    group_norm,
    linear,
    records,
    trainer,
)

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["SGD", "Adam"])
@pytest.mark.parametrize("model_fn", [linear, group_norm, batch_norm, dropping])
def test_exactly_one_member_changes(model_fn, optimizer):
    datamodule = data()
    found = ensemble(model_fn, optimizer=optimizer).verify_isolation(datamodule, index=5)
    assert 5 in datamodule.assignment()[found.member]
    assert found.steps >= 4


@pytest.mark.parametrize("changes", [{"backend": "loop"}, {"chunk_size": 3}, {"clip_norm": 0.1}])
def test_also_by_other_ways(changes):
    ensemble(batch_norm, **changes).verify_isolation(data())


def test_with_another_key_and_a_replacement():
    parts = Partition(num_parts=4, key="content", seed=0)
    found = ensemble(linear, parts)
    replacement = (torch.full((6,), 1e20), torch.tensor(1))
    assert found.verify_isolation(data(parts=parts), index=2, replacement=replacement).steps > 0


def test_the_ensemble_itself_is_left_alone():
    found, datamodule = ensemble(), data()
    before = {name: value.clone() for name, value in found.state_dict().items()}
    found.verify_isolation(datamodule)
    assert all(torch.equal(before[name], value) for name, value in found.state_dict().items())
    assert datamodule.trainer is None
    with pytest.raises(InvalidArgumentError, match="PartitionedDataModule"):
        found.verify_isolation(records())
    with pytest.raises(InvalidArgumentError, match="`index`"):
        found.verify_isolation(datamodule, index=60)
    assert issubclass(IsolationError, HoldoutError)


def test_in_the_other_package_and_after_a_fit():
    from torch_holdout.prediction import pytorch_lightning as bound

    found = ensemble(linear, kind=bound.PartitionedEnsemble)
    datamodule = data(kind=bound.PartitionedDataModule)
    trainer(pytorch_lightning.Trainer).fit(found, datamodule=datamodule)
    options = {"accumulate_grad_batches": 2, "precision": "bf16-mixed"}
    found.verify_isolation(datamodule, trainer_options=options)
    assert datamodule.trainer is not None


# ---- broken twins


class Pooled:
    """A loss that scales by a running mean over all members."""

    def __init__(self):
        self.mean = torch.zeros(())

    def __deepcopy__(self, memo):
        return Pooled()

    def __call__(self, output, target):
        loss = functional.cross_entropy(output, target)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        return loss / (1 + self.mean)


def test_twin_with_a_loss_that_remembers_is_caught():
    with pytest.raises(IsolationError, match=r"\d of 4 members changed"):
        ensemble(linear, loss=Pooled(), backend="loop").verify_isolation(data())


STATISTIC = torch.zeros(6)


class Normalising(nn.Module):
    """Members share a running mean that lives in the module's globals."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        STATISTIC.mul_(0.9).add_(0.1 * x.detach().mean(dim=0))
        return self.head(x - STATISTIC)


def test_twin_with_a_shared_statistic_is_caught():
    with pytest.raises(IsolationError, match="same training twice"):
        ensemble(Normalising, backend="loop").verify_isolation(data())


class FirstPartForAll(PartitionedDataModule):
    def sampler(self):
        proper = super().sampler()
        return self.of([proper.parts[0]] * len(proper.parts))

    def of(self, parts):
        return PartSampler(
            parts, first=0, batch_size=self.batch_size, steps=self.steps_per_epoch, seed=0
        )


class EveryoneResamples(FirstPartForAll):
    def sampler(self):
        everything = torch.arange(len(self.train_set))
        return self.of([everything] * self.parts.num_parts)


def test_twin_whose_members_all_get_the_first_part_is_caught():
    datamodule = data(kind=FirstPartForAll)
    index = int(datamodule.assignment()[0][0])
    with pytest.raises(IsolationError, match="4 of 4 members changed"):
        ensemble(linear).verify_isolation(datamodule, index=index)
    missing = int(datamodule.assignment()[1][0])
    with pytest.raises(IsolationError, match="was not within"):
        ensemble(linear).verify_isolation(datamodule, index=missing)


def test_twin_whose_members_resample_the_whole_set_is_caught():
    datamodule = data(kind=EveryoneResamples, steps_per_epoch=30)
    with pytest.raises(IsolationError, match="members changed"):
        ensemble(linear).verify_isolation(datamodule)


class Whitened:
    """Records normalised by a mean over the whole set."""

    def __init__(self, base):
        self.base = base

    def __len__(self):
        return len(self.base)

    def __getitem__(self, index):
        mean = torch.stack([self.base[k][0] for k in range(len(self))]).mean(dim=0)
        return self.base[index][0] - mean, self.base[index][1]


class WhitenedModule(PartitionedDataModule):
    def train_dataloader(self):
        kept, self.train_set = self.train_set, Whitened(self.train_set)
        loader = super().train_dataloader()
        self.train_set = kept
        return loader


def test_twin_with_a_statistic_of_the_whole_set_is_caught():
    with pytest.raises(IsolationError, match="4 of 4 members changed"):
        ensemble(linear).verify_isolation(data(kind=WhitenedModule))


def test_a_record_that_teaches_nothing_is_said_to():
    datamodule = data()
    same = records()[0]
    with pytest.raises(IsolationError, match="none of 4"):
        ensemble(linear).verify_isolation(datamodule, index=0, replacement=same)
