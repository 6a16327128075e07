"""Batches: every member its own part, in an order that resuming and workers leave as it is."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction import Partition
from torch_holdout.prediction.ensemble.batches import BLANK, PartSampler

import pytorch_lightning
from support.builders.ensembles import PARTS, data, deep, ensemble, records, trainer


def epoch(datamodule, number=0):
    loader = datamodule.train_dataloader()
    loader.sampler.set_epoch(number)
    return list(loader)


def equal(one, other):
    return len(one) == len(other) and all(
        torch.equal(a, b) for left, right in zip(one, other, strict=True)
        for a, b in zip(left, right, strict=True)
    )  # fmt: skip


class Rows(Dataset):
    """Records one by one."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.reads = 0

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, index):
        self.reads += 1
        return tuple(column[index] for column in self.tensors)


class Gathering(Rows):
    """Records in one go."""

    def __getitems__(self, indices):
        self.reads += 1
        return [tuple(column[index] for column in self.tensors) for index in indices]


def test_every_slot_has_a_record_of_its_part():
    found = PARTS.assign(records())
    for x, _ in epoch(data(batch_size=5, steps_per_epoch=9)):
        for part, rows in zip(found, x.view(4, 5, 6), strict=True):
            own = {tuple(row.tolist()) for row in records().tensors[0][part]}
            assert {tuple(row.tolist()) for row in rows} <= own


def test_a_part_is_seen_whole_before_a_record_comes_again():
    parts = [torch.arange(7), torch.tensor([9])]
    steps = list(PartSampler(parts, first=0, batch_size=3, steps=14, seed=0))
    first = np.concatenate([step[:3] for step in steps])
    assert all(sorted(first[i : i + 7]) == list(range(7)) for i in range(0, 42, 7))
    assert not np.array_equal(first[:7], first[7:14])
    assert set(np.concatenate([step[3:] for step in steps])) == {9}


def test_the_order_depends_on_epoch_and_part_only():
    short, long = data(steps_per_epoch=3), data(steps_per_epoch=8)
    assert equal(epoch(short), epoch(long)[:3])
    assert not equal(epoch(short, 0), epoch(short, 1))
    assert equal(epoch(short, 1), epoch(short, 1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_and_kinds_of_dataset_give_the_same_batches():
    base = records()
    expected = epoch(data(base))
    rows, gathering = Rows(base.tensors), Gathering(base.tensors)
    for dataset in (rows, gathering, Subset(base, range(60)), Subset(rows, range(60))):
        assert equal(epoch(data(dataset)), expected)
    assert gathering.reads == 3
    turned = TensorDataset(*[column.flip(0) for column in base.tensors])
    assert equal(epoch(data(Subset(turned, range(59, -1, -1)))), expected)
    assert equal(epoch(data(base, num_workers=2)), expected)
    assert equal(epoch(data(Rows(base.tensors), num_workers=2)), expected)


def test_empty_parts_are_served_blank_records():
    parts = Partition(num_parts=4, key=lambda record: int(record[1]), seed=0)
    base = TensorDataset(torch.ones(6, 2), torch.full((6,), 2))
    owner = parts.part_of([2]).item()
    for dataset in (base, Rows(base.tensors)):
        for x, y in epoch(data(dataset, parts)):
            full = (x.view(4, 4, 2) == 1).all(dim=2).all(dim=1)
            assert full.nonzero().flatten().tolist() == [owner]
            assert int(y.sum()) == 2 * 4
    assert BLANK < 0


def test_as_pair_makes_pairs_and_its_absence_is_named():
    base = records()
    dicts = [{"x": a, "y": b, "id": k} for k, (a, b) in enumerate(base)]
    assert equal(epoch(data(dicts, as_pair=lambda r: (r["x"], r["y"]))), epoch(data(base)))
    with pytest.raises(InvalidArgumentError, match="as_pair="):
        epoch(data(dicts))
    with pytest.raises(InvalidArgumentError, match="as_pair="):
        epoch(data(TensorDataset(*base.tensors, torch.zeros(60))))


def test_keys_that_are_given_leave_records_unread():
    rows = Rows(records().tensors)
    parts = Partition(num_parts=4, key=lambda record: 1 / 0, seed=0)
    data(rows, parts, keys=range(60)).assignment()
    assert rows.reads == 0


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"batch_size": 0}, "batch_size"), ({"steps_per_epoch": 0}, "steps_per_epoch")],
)
def test_what_is_refused(changes, name):
    with pytest.raises(InvalidArgumentError, match=name):
        data(**changes)
    for nothing in ([], iter([1])):
        with pytest.raises(InvalidArgumentError, match=r"empty|length"):
            data(nothing)


def test_records_of_unequal_shapes_are_not_described():
    ragged = [(torch.zeros(2 + (k == 7)), 0) for k in range(60)]
    with pytest.raises(InvalidArgumentError, match="Its message is withheld") as caught:
        epoch(data(ragged, steps_per_epoch=30))
    assert caught.value.__context__ is None


@pytest.mark.parametrize("package", [pl, pytorch_lightning])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore")  # Lightning's advice about workers and the like
def test_lightning_says_the_epoch_to_the_sampler(package, workers):
    from torch_holdout.prediction import lightning
    from torch_holdout.prediction import pytorch_lightning as other

    bound = lightning if package is pl else other
    seen = []

    class Watch(bound.PartitionedEnsemble):
        def training_step(self, batch, batch_idx):
            seen.append((batch.input.flatten(0, 1).clone(), batch.target.flatten().clone()))
            return super().training_step(batch, batch_idx)

    datamodule = data(kind=bound.PartitionedDataModule, num_workers=workers)
    trainer(package.Trainer, max_epochs=3).fit(ensemble(deep, kind=Watch), datamodule=datamodule)
    datamodule.trainer = None
    assert equal(seen, [pair for number in range(3) for pair in epoch(datamodule, number)])
