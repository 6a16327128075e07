"""A record's part is a pure function of its key and the seed."""

import functools
import json
import pickle
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.utils.data import TensorDataset
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction import Partition


def by_id(record):
    return int(record[0])


@given(
    keys=st.lists(st.integers(-(2**63), 2**64 - 1), unique=True, min_size=1), seed=st.integers(0)
)
def test_neither_order_nor_company_nor_container_matters(keys, seed):
    parts = Partition(num_parts=7, key=by_id, seed=seed % 2**63)
    found = dict(zip(keys, parts.part_of(keys).tolist(), strict=True))
    backwards = parts.part_of(keys[::-1]).tolist()[::-1]
    assert backwards == list(found.values())
    assert all(parts.part_of([key]).item() == part for key, part in found.items())
    small = [key for key in keys if key < 2**63]
    assert parts.part_of(np.array(small, dtype=np.int64)).tolist() == [found[k] for k in small]
    assert parts.part_of(torch.tensor(small, dtype=torch.int64)).tolist() == [
        found[k] for k in small
    ]


def test_the_hash_is_splitmix64():
    """Known values, so that no later version cuts the same data in another way."""

    def reference(word):
        word = (word + 0x9E3779B97F4A7C15) % 2**64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return word ^ (word >> 31)

    assert reference(0) == 0xE220A8397B1DCDAF  # published
    parts = Partition(num_parts=1000, seed=5)
    expected = [reference(key ^ reference(5)) % 1000 for key in range(50)]
    assert parts.part_of(range(50)).tolist() == expected


def test_another_process_finds_the_same_parts():
    code = (
        "import json, sys; from torch_holdout.prediction import Partition;"
        "assert not {'lightning', 'pytorch_lightning'} & set(sys.modules);"
        "print(json.dumps(Partition(num_parts=9, key=str, seed=3).part_of("
        "['a', 'b', b'a', 5, -1, 2**64 - 1]).tolist()))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": hashing, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for hashing in ("1", "2")
    ]  # fmt: skip
    own = Partition(num_parts=9, key=str, seed=3).part_of(["a", "b", b"a", 5, -1, 2**64 - 1])
    assert [json.loads(run) for run in runs] == [own.tolist()] * 2


def test_assign_follows_the_record_through_a_shuffle():
    ids = torch.arange(200) * 31
    parts = Partition(num_parts=5, key=by_id, seed=1)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    plain = parts.assign(TensorDataset(ids))
    mixed = parts.assign(TensorDataset(ids[order]))
    for one, other in zip(plain, mixed, strict=True):
        assert set(ids[one].tolist()) == set(ids[order][other].tolist())
        assert one.tolist() == sorted(one.tolist())
    given_keys = parts.assign(range(200), keys=ids)
    assert all(torch.equal(a, b) for a, b in zip(plain, given_keys, strict=True))


def test_equal_content_goes_together():
    x = torch.tensor([[1.0], [2.0], [1.0]])
    found = Partition(num_parts=50, key="content", seed=0).assign(TensorDataset(x))
    assert any(part.tolist()[:1] == [0] and 2 in part.tolist() for part in found)


def test_parts_are_disjoint_whole_and_about_equal():
    found = Partition(num_parts=10, seed=2).assign(range(10_000))
    assert sorted(torch.cat(found).tolist()) == list(range(10_000))
    assert 900 < min(map(len, found)) <= max(map(len, found)) < 1100
    even = Partition(num_parts=7, seed=2, balanced=True).assign(range(100))
    assert {len(part) for part in even} == {14, 15}


@pytest.mark.parametrize(
    ("arguments", "relation", "members"),
    [
        ({"key": "index"}, "replace-one", 1),
        ({"key": "content"}, "add-remove", 1),
        ({"key": by_id, "unit": "user"}, "add-remove", 1),
        ({"key": by_id, "relation": "replace-one"}, "replace-one", 2),
        ({"key": "content", "relation": "replace-one"}, "replace-one", 2),
    ],
)
def test_who_is_a_neighbour(arguments, relation, members):
    parts = Partition(num_parts=3, seed=0, **arguments)
    assert (parts.neighbours.relation, parts.neighbours.members_changed) == (relation, members)
    assert json.loads(json.dumps(parts.identity())) == parts.identity()
    assert str(parts.neighbours) in str(parts)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"key": "index", "relation": "add-remove"}, "shifts the index"),
        ({"key": "content", "unit": "user"}, "returns the record's user"),
        ({"key": by_id, "balanced": True}, "only by index"),
        ({"key": "name"}, "`key`"),
        ({"num_parts": 0}, "`num_parts`"),
        ({"seed": -1}, "`seed`"),
    ],
)
def test_what_is_refused(arguments, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        Partition(**{"num_parts": 3, "seed": 0, **arguments})


def test_empty_parts_are_an_error_by_index_and_private_otherwise():
    with pytest.raises(InvalidArgumentError, match="fewer parts"):
        Partition(num_parts=9, seed=0).assign(range(8))
    with pytest.raises(InvalidArgumentError, match="balanced=True"):
        Partition(num_parts=9, seed=0).assign(range(10))
    found = Partition(num_parts=9, key=by_id, seed=0).assign(range(2), keys=[1, 2])
    assert sum(map(len, found)) == 2


def test_a_refused_key_is_not_quoted():
    with pytest.raises(InvalidArgumentError, match="type float") as caught:
        Partition(num_parts=3, key=by_id, seed=0).part_of([1, 2.125])
    assert "2.125" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="one key for each record"):
        Partition(num_parts=3, key=by_id, seed=0).assign(range(3), keys=[1])
    with pytest.raises(InvalidArgumentError, match="no `keys`"):
        Partition(num_parts=3, seed=0).assign(range(3), keys=[1, 2, 3])
    with pytest.raises(InvalidArgumentError, match="assign"):
        Partition(num_parts=3, seed=0, balanced=True).part_of([1])
    with pytest.raises(InvalidArgumentError, match="with a object"):
        Partition(num_parts=3, key="content", seed=0).assign([object()])


class Field:
    """A key function that is an object."""

    def __init__(self, name):
        self.name = name

    def __call__(self, record):
        return record[self.name]


def keyed(key):
    return Partition(num_parts=3, key=key, seed=7)


def with_closure(name):
    return lambda record: record[name]


def with_default(name):
    def key(record, name=name):
        return record[name]

    return key


@pytest.mark.parametrize("make", [with_closure, with_default, Field])
def test_key_functions_of_one_name_are_told_apart(make):
    user, visit = keyed(make("user")), keyed(make("visit"))
    assert user.identity() != visit.identity()
    assert user.compare(visit.identity()) == "another function"
    assert user.compare(keyed(make("user")).identity()) == "same"
    assert str(user) == str(visit)  # what is shown has no digest


def test_key_functions_of_one_name_and_other_code_are_told_apart():
    one, other = (lambda record: record[0]), (lambda record: record[1])
    assert keyed(one).compare(keyed(other).identity()) == "another function"
    halves = [functools.partial(with_default("a"), name=name) for name in "ab"]
    assert keyed(halves[0]).compare(keyed(halves[1]).identity()) == "another function"
    assert keyed(halves[0]).compare(keyed(halves[0]).identity()) == "same"


def test_a_function_that_keeps_counts_stays_itself():
    seen = []

    def counting(record):
        seen.append(record)
        return record

    parts = keyed(counting)
    before = parts.identity()
    parts.assign(range(9))
    assert parts.compare(before) == "same"


def test_a_function_is_the_same_in_a_script_and_in_a_module():
    code = "def by_user(record):\n    return record['user']\n"
    made = [{"__name__": name} for name in ("__main__", "train")]
    for space in made:
        exec(code, space)
    one, other = (keyed(space["by_user"]) for space in made)
    assert one.compare(other.identity()) == "same"


def test_identities_without_code_or_of_another_python_are_compared_by_name():
    parts = keyed(by_id)
    stored = parts.identity()
    earlier = {name: value for name, value in stored.items() if name != "code"}
    elsewhere = {**stored, "code": {"digest": "0" * 64, "python": "3.9"}}
    edited = {**stored, "code": {**stored["code"], "digest": "0" * 64}}
    renamed = {**earlier, "key": "another"}
    told = [parts.compare(one) for one in (stored, earlier, elsewhere, edited, renamed, None)]
    assert told == ["same", "by name", "by name", "another function", "other", "other"]
    plain = Partition(num_parts=3, seed=7)
    assert "code" not in plain.identity()  # checkpoints of every version agree
    assert plain.compare(plain.identity()) == "same"
    assert plain.compare({**plain.identity(), "seed": 8}) == "other"


def test_a_closure_that_cannot_be_read_yet_is_compared_by_name():
    def key(record):
        return later(record)

    parts = keyed(key)
    assert parts.compare(parts.identity()) == "by name"
    later = str
    assert parts.part_of([later(1)]).shape == (1,)


def test_the_identity_travels_and_is_the_same_in_another_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from prediction.test_partition import by_id, keyed; import json;"
        "print(json.dumps(keyed(by_id).identity()))"
    )
    tests = str(Path(__file__).parent.parent)
    printed = subprocess.run(
        [sys.executable, "-c", code, tests],
        capture_output=True, text=True, check=True,
        env={"PYTHONHASHSEED": "5", "PYTHONPATH": ":".join(sys.path)},
    ).stdout  # fmt: skip
    parts = keyed(by_id)
    assert parts.compare(json.loads(printed)) == "same"
    assert pickle.loads(pickle.dumps(keyed(str))).identity() == keyed(str).identity()
