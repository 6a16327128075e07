"""Neighbouring sets of records differ in the changed record, and keep their kind."""

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.neighbouring import (
    NO_CHANGE,
    Change,
    RecordsView,
    changed_records,
    far_record,
    given_record,
    has_floats,
    moved_record,
    places_of_user,
)

NUMBERS = [0.0, 10.0, 20.0, 30.0]
KINDS = {
    "list": list(NUMBERS),
    "tuple": tuple(NUMBERS),
    "tensor": torch.tensor(NUMBERS),
    "array": np.array(NUMBERS),
    "view": Subset(NUMBERS, range(4)),
}
REMOVED = Change(action="removing", removed=frozenset([1, 2]))


def listed(records):
    return [float(record) for record in records]


@pytest.mark.parametrize("kind", KINDS)
def test_removing_and_replacing(kind):
    records = KINDS[kind]
    replaced = Change(action="replacing", replaced={3: lambda: 5.0})
    assert listed(changed_records(records, NO_CHANGE)) == NUMBERS
    assert listed(changed_records(records, REMOVED)) == [0.0, 30.0]
    assert listed(changed_records(records, replaced)) == [0.0, 10.0, 20.0, 5.0]
    assert listed(records) == NUMBERS
    new = changed_records(records, replaced)
    assert type(new) is (RecordsView if kind == "view" else type(records))


def test_columns_of_tensors():
    records = TensorDataset(torch.arange(3.0), torch.tensor([7, 8, 9]))
    new = {1: moved_record(records, 2)}
    changed = changed_records(records, Change(action="replacing", replaced=new))
    assert [column.tolist() for column in changed.tensors] == [[0.0, -1.0, 2.0], [7, 9, 9]]
    assert len(changed_records(records, REMOVED)) == 1
    with pytest.raises(InvalidArgumentError, match="like the records"):
        changed_records(records, Change(action="replacing", replaced={1: lambda: (1.0,)}))


def test_numbers_are_moved_and_labels_are_kept():
    record = {"x": torch.tensor([0.25, -2.0]), "image": np.float32([1.0]), "y": 3, "text": "a"}
    moved = moved_record([record], 0)()
    assert moved["x"].tolist() == [0.75, 3.0]
    assert moved["image"].tolist() == [0.0]
    assert moved["image"].dtype == np.float32
    assert (moved["y"], moved["text"]) == (3, "a")
    assert far_record([record], 0, -10.0)()["x"].tolist() == [-12.5, -30.0]
    assert has_floats(record)
    assert has_floats([0.5])
    assert not has_floats((torch.arange(3), np.arange(3), "text", 1))


def test_a_given_record_is_returned_after_the_old_one_was_read():
    class Noticing(list):
        read = 0

        def __getitem__(self, index):
            self.read += 1
            return super().__getitem__(index)

    records = Noticing("ab")
    assert given_record(records, 1, "c")() == "c"
    assert records.read == 1


@pytest.mark.parametrize(
    "keys", [[5, 6, 5], ["a", "b", "a"], torch.tensor([5, 6, 5]), np.arange(3) % 2]
)
def test_the_records_of_a_user(keys):
    assert places_of_user(keys, 2) == {0, 2}
    assert places_of_user(keys, 1) == {1}
