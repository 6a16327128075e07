import collections
import copy
import dataclasses
import hashlib
import pickle

import numpy as np
import pytest
import torch
import torch_holdout as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch_holdout._fingerprints.hashing import digest
from torch_holdout._fingerprints.records import read_records, record_hash
from torch_holdout.errors import InvalidArgumentError, SealedValueError

KEY = b"k" * 32


def keyed(dataset, key=KEY):
    return th.fingerprint(dataset).keyed(key).fingerprint


def dataset(size=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(size, 3, generator=generator), torch.arange(size) % 4)


@dataclasses.dataclass
class Example:
    x: object
    y: object


Pair = collections.namedtuple("Pair", "x y")

FORMS = {
    "float64": lambda x, y: (x.double(), y),
    "float32 labels": lambda x, y: (x, y.float()),
    "int32": lambda x, y: (x, y.int()),
    "uint8": lambda x, y: (x, y.byte()),
    "numpy": lambda x, y: (x.numpy(), y.numpy()),
    "numpy float64": lambda x, y: (x.double().numpy(), int(y)),
    "python": lambda x, y: (x.tolist(), y.item()),
    "nested": lambda x, y: [[[value] for value in x.tolist()], y],
    "dictionary": lambda x, y: {"x": x, "y": y},
    "other names": lambda x, y: {"pixel_values": x, "labels": y},
    "user dictionary": lambda x, y: collections.UserDict(x=x, y=y),
    "named tuple": lambda x, y: Pair(x, y),
    "dataclass": lambda x, y: Example(x, y),
    "another shape": lambda x, y: (x[None, :, None], y[None]),
    "one row": lambda x, y: torch.cat([x, y[None]]),
    "a parameter": lambda x, y: (torch.nn.Parameter(x), y),
    "not contiguous": lambda x, y: (torch.stack([x, x], 1)[:, 0], y),
}


class TestValues:
    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    def test_the_same_values_in_another_form(self, form):
        data = dataset()
        assert keyed([form(x, y) for x, y in data]) == keyed(data)

    def test_the_same_examples_in_any_order(self):
        data = dataset()
        assert keyed(data) == keyed(dataset())
        assert keyed(Subset(data, list(reversed(range(20))))) == keyed(data)

    def test_float64_that_is_cast_later(self):
        x = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        assert keyed(TensorDataset(x)) == keyed(TensorDataset(x.float()))
        assert keyed(TensorDataset(x)) == keyed(x.numpy().tolist())

    def test_any_other_data_differs(self):
        data = dataset()
        x, y = data.tensors
        others = [
            dataset(seed=1),
            Subset(data, range(19)),
            Subset(data, [0, *range(19)]),
            TensorDataset(x, y.clone().index_fill_(0, torch.tensor(3), 0)),
            TensorDataset(x + 1e-5, y),
            TensorDataset(x.half(), y),  # loses digits
            TensorDataset(x.bfloat16(), y),
            TensorDataset(x.flip(1), y),
            [(x, str(int(y))) for x, y in data],
            [(x, y, None) for x, y in data],
        ]
        assert len({keyed(data), *map(keyed, others)}) == 1 + len(others)

    def test_zeros_and_what_is_no_number(self):
        assert record_hash([-0.0, 0]) == record_hash(torch.zeros(2))
        nan = np.array([np.nan, 1]).view(np.uint64) ^ np.array([1, 0], dtype=np.uint64)
        assert record_hash(nan.view(np.float64)) == record_hash([float("nan"), True])
        assert record_hash([float("inf")]) != record_hash([float("-inf")])

    def test_huge_integers(self):
        """Through a double to float32, in every form; beyond doubles exactly."""
        many = [2**24 + 1, 2**53 + 1, 2**60 + 2**36 + 1, -(2**62) - 2**38 - 1, 10**18 + 7]
        assert record_hash(many) == record_hash(torch.tensor(many)) == record_hash(np.array(many))
        assert record_hash(many) == record_hash(torch.tensor(many, dtype=torch.float64))
        assert record_hash(np.array([2**64 - 1], dtype=np.uint64)) == record_hash([2**64 - 1])
        assert record_hash([10**400]) != record_hash([10**400 + 1])

    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8))
    def test_integers_in_every_form(self, values):
        assert record_hash(values) == record_hash(torch.tensor(values))

    def test_complex_values(self):
        values = torch.tensor([1 + 2j, 3 - 1j])
        assert record_hash(values) == record_hash(values.numpy().astype(np.complex128))
        assert record_hash(values) != record_hash(values.conj())

    def test_texts(self):
        assert record_hash(["ab", "c"]) != record_hash(["a", "bc"])
        assert record_hash(["ab", "c"]) == record_hash(np.array(["ab", "c"]))
        assert record_hash({"text": "a", "label": 1}) == record_hash(("a", torch.tensor(1)))
        assert record_hash("1") != record_hash(1)
        assert record_hash(b"a") != record_hash("a")
        assert record_hash({"b", "a"}) == record_hash({"a", "b"})
        assert record_hash(np.array(["2026-01-01"], "M8[D]")) == record_hash(["2026-01-01"])
        assert record_hash(np.array(["a", 1.0, None], dtype=object)) == record_hash(["a", 1, None])

    def test_images(self):
        pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)

        class Image:  # as PIL gives it
            __array_interface__ = pixels.__array_interface__

        assert record_hash((Image(), 3)) == record_hash((torch.tensor(pixels), 3))
        assert record_hash(pixels) == record_hash(torch.tensor(pixels).float())
        assert record_hash(pixels) != record_hash(torch.tensor(pixels).float() / 255)
        assert record_hash(pixels) != record_hash(torch.tensor(pixels).permute(2, 0, 1))

    def test_tokenised_text(self):
        records = [
            {"input_ids": [5, 8 + n, 9], "attention_mask": [1, 1, 1], "labels": n % 2}
            for n in range(10)
        ]
        tensors = TensorDataset(
            torch.tensor([record["input_ids"] for record in records]),
            torch.ones(10, 3),
            torch.tensor([record["labels"] for record in records]),
        )
        assert keyed(records) == keyed(tensors)


def tensor_datasets():
    dtypes = st.sampled_from(
        [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16]
    )
    shapes = st.lists(st.integers(1, 3), max_size=2)

    def build(size, parts, seed):
        generator = torch.Generator().manual_seed(seed)
        return TensorDataset(
            *(
                (torch.randn(size, *shape, generator=generator) * 2**scale).to(dtype)
                for dtype, shape, scale in parts
            )
        )

    parts = st.lists(st.tuples(dtypes, shapes, st.integers(0, 7)), min_size=1, max_size=3)
    return st.builds(build, st.integers(1, 6), parts, st.integers(0, 99))


def unlike_a_tensor_dataset(data):
    return [data[index] for index in range(len(data))]


class TestChunks:
    @settings(deadline=None, max_examples=60)
    @given(tensor_datasets(), st.data())
    def test_rows_have_the_hashes_of_their_records(self, data, draw):
        places = st.integers(-len(data), len(data) - 1)
        for _ in range(draw.draw(st.integers(0, 2))):
            data = Subset(data, draw.draw(st.lists(places, min_size=1, max_size=6)))
            places = st.integers(-len(data), len(data) - 1)
        numbers = range(len(data))
        plain = unlike_a_tensor_dataset(data)
        assert list(read_records(data, numbers, earlier=True)) == [
            (record_hash(record), digest(record)) for record in plain
        ]

    def test_many_chunks(self, monkeypatch):
        monkeypatch.setattr("torch_holdout._fingerprints.records._CHUNK_BYTES", 64)
        data = dataset(50)
        assert keyed(data) == keyed(unlike_a_tensor_dataset(data))

    def test_a_subclass_may_return_other_records(self):
        class Negated(TensorDataset):
            def __getitem__(self, index):
                return tuple(-part for part in super().__getitem__(index))

        data = dataset()
        assert keyed(Negated(*data.tensors)) == keyed([(-x, -y) for x, y in data])


class TestSecrets:
    def test_the_key_matters(self):
        assert keyed(dataset()) != keyed(dataset(), b"x" * 32)

    def test_the_digest_of_version_0_1_0(self):
        """Accounts that it made are found again: the formula must not change."""
        data = dataset()
        examples = sorted(digest(data[index]) for index in range(20))
        assert th.fingerprint(data)._digest == hashlib.sha256(b"".join(examples)).digest()
        fixed = TensorDataset(torch.arange(60).view(20, 3) / 7, torch.arange(20) % 4)
        assert th.fingerprint(fixed)._digest.hex().startswith("789a8b569422ebf3")

    def test_what_it_refused_has_none(self):
        assert th.fingerprint([Example(1, 2)]).keyed(KEY).earlier is None

    def test_it_shows_and_pickles_nothing(self):
        found = th.fingerprint(dataset())
        assert repr(found) == "<fingerprint of 20 examples>"
        assert copy.deepcopy(found) is found
        assert repr(found.keyed(KEY)) == "<keyed fingerprint of 20 examples>"
        for sealed in (found, found.keyed(KEY)):
            with pytest.raises(SealedValueError):
                pickle.dumps(sealed)


class TestRefusals:
    def test_what_cannot_be_hashed(self):
        holds_itself = []
        holds_itself.append(holds_itself)
        for record in (object(), torch.ones(2).to_sparse(), holds_itself, np.zeros(1, "V3")):
            with pytest.raises(InvalidArgumentError, match="Wrap the dataset"):
                th.fingerprint([record])

    @pytest.mark.parametrize(
        "given", [[], {}, {"a": 1}, "text", 3, None, {1}, torch.tensor(1.0), dataset]
    )
    def test_what_is_no_dataset(self, given):
        for function in (th.fingerprint, lambda value: th.overlap(dataset(), value)):
            with pytest.raises(InvalidArgumentError, match="at least one"):
                function(given)

    def test_loaders_and_streams(self):
        class Stream(IterableDataset):
            def __iter__(self):
                yield from range(3)

        with pytest.raises(InvalidArgumentError, match=r"Give loader\.dataset"):
            th.fingerprint(DataLoader(dataset()))
        with pytest.raises(InvalidArgumentError, match=r"list\(dataset\)"):
            th.overlap(Stream(), dataset())


class TestOverlap:
    def test_the_same_data_in_another_form(self):
        data = dataset(100)
        found = th.overlap(data, [{"x": x.double(), "y": int(y)} for x, y in data])
        assert (found.shared, found.share_of_first, found.share_of_second) == (100, 1.0, 1.0)

    def test_a_part_and_foreign_data(self):
        data = dataset(100)
        part = th.overlap(Subset(data, range(25)), data)
        assert (part.shared, part.share_of_first, part.share_of_second) == (25, 1.0, 0.25)
        assert th.overlap(data, dataset(100, seed=1)).shared == 0

    def test_fingerprints_and_datasets(self):
        data = dataset(100)
        replaced = [*Subset(data, range(95)), *Subset(dataset(seed=1), range(5))]
        for one in (data, th.fingerprint(data)):
            for other in (replaced, th.fingerprint(replaced)):
                assert th.overlap(one, other).shared == 95
        assert str(th.overlap(data, replaced)) == (
            "95 records in common: 95 % of the first (100 records), 95 % of the second "
            "(100 records)"
        )

    def test_equal_records_count_once(self):
        found = th.overlap([1, 1, 2], [1, 3, 3])
        assert (found.shared, found.first, found.second) == (1, 2, 2)
