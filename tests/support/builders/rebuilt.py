"""Functions that make an ensemble, its data and its Trainer options from records."""

import torch
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset
from torch_holdout.prediction import Partition
from torch_holdout.prediction.lightning import PartitionedDataModule, PartitionedEnsemble

from support.builders.ensembles import PARTS, SGD, data, ensemble, linear


def record_id(record):
    return int(record[0])


def user(record):
    return int(record[0]) // 4


BY_INDEX = PARTS
BY_ID = Partition(num_parts=4, key=record_id, seed=7)
BY_ID_REPLACED = Partition(num_parts=4, key=record_id, seed=7, relation="replace-one")
BY_USER = Partition(num_parts=4, key=user, seed=7, unit="user")
BY_USER_REPLACED = Partition(num_parts=4, key=user, seed=7, unit="user", relation="replace-one")
RELATIONS = {
    "index": BY_INDEX,
    "id": BY_ID,
    "id replaced": BY_ID_REPLACED,
    "user": BY_USER,
    "user replaced": BY_USER_REPLACED,
}


def rows(size=48):
    """Records with an id, six features and one of three labels."""
    x = torch.randn(size, 6, generator=torch.Generator().manual_seed(0))
    return TensorDataset(torch.arange(size), x, x[:, :3].argmax(dim=1))


def features(records):
    return torch.stack([record[1] for record in records])


def labels(records):
    return torch.stack([record[2] for record in records])


def pair(record):
    return record[1], record[2]


class Wrapped(Dataset):
    """Records whose features are changed when they are read; for couplings and their twins."""

    def __init__(self, records, change):
        self.records = records
        self.change = change

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        number, x, label = self.records[index]
        return number, self.change(self.records, index, x), label


def builder(
    parts=BY_INDEX,
    *,
    model=lambda records: linear,
    loss=lambda records: functional.cross_entropy,
    optimizer=lambda records: SGD,
    train_set=lambda records: records,
    as_pair=lambda records: pair,
    data_options=lambda records: {},
    ensemble_options=lambda records: {},
    options=lambda records: {},
    kinds=(PartitionedEnsemble, PartitionedDataModule),
):
    """A function for ``verify_isolation``; each argument is made from the records."""

    def build(records):
        made = ensemble(
            model(records),
            parts,
            kinds[0],
            loss=loss(records),
            optimizer=optimizer(records),
            **ensemble_options(records),
        )
        module = data(
            train_set(records),
            parts,
            kinds[1],
            as_pair=as_pair(records),
            **data_options(records),
        )
        return made, module, {"max_epochs": 4, **options(records)}

    return build
