import copy
import pickle

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch.utils.data import Subset, TensorDataset
from torch_holdout.errors import InvalidArgumentError, SealedValueError

KEY = b"k" * 32


def keyed(dataset, key=KEY):
    return th.fingerprint(dataset).keyed(key)


def dataset(size=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(size, 3, generator=generator), torch.arange(size) % 4)


def test_the_same_examples_in_any_order():
    data = dataset()
    assert keyed(data) == keyed(dataset())
    assert keyed(Subset(data, list(reversed(range(20))))) == keyed(data)


def test_any_other_data_differs():
    data = dataset()
    relabelled = TensorDataset(
        data.tensors[0], data.tensors[1].clone().index_fill_(0, torch.tensor(3), 0)
    )
    others = [
        dataset(seed=1),
        Subset(data, range(19)),
        relabelled,
        TensorDataset(data.tensors[0].double(), data.tensors[1]),
    ]
    assert len({keyed(data), *map(keyed, others)}) == 5


def test_the_key_matters():
    assert keyed(dataset()) != keyed(dataset(), b"x" * 32)


def test_examples_of_many_kinds():
    class Mixed:
        def __init__(self, text):
            self.text = text

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return {"x": np.arange(3), "y": [1, 2.5, None, True], "z": (self.text, b"raw")}

    assert keyed(Mixed("a")) == keyed(Mixed("a"))
    assert keyed(Mixed("a")) != keyed(Mixed("b"))


def test_numpy_and_torch_examples_agree():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert keyed([values[0], values[1]]) == keyed([torch.tensor(row) for row in values])


def test_it_shows_and_pickles_nothing():
    found = th.fingerprint(dataset())
    assert repr(found) == "<fingerprint of 20 examples>"
    assert copy.deepcopy(found) is found
    with pytest.raises(SealedValueError):
        pickle.dumps(found)


def test_what_cannot_be_hashed_is_refused():
    with pytest.raises(InvalidArgumentError, match="Wrap the dataset"):
        th.fingerprint([object()])
    with pytest.raises(InvalidArgumentError, match="at least one"):
        th.fingerprint([])
