"""``th.split``: a dataset cut once, by the seed, and what cannot be cut."""

import copy
import itertools
import logging
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch_holdout as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from torch_holdout._fingerprints import cut as cut_module
from torch_holdout._fingerprints.cut import Part
from torch_holdout._fingerprints.records import _Rows
from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError
from torch_holdout.training.data_check import compare_with_account
from torch_holdout.training.data_reading import read

from support.builders.holdouts import make_holdout

KEY = b"k" * 32
FROZEN = ([4, 1, 7], [5, 3, 9, 0, 8, 6, 2])
FROZEN_GROUPED = [8, 9]
LABELS = [f"patient {i % 17}" for i in range(100)]


def data(size=100, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(size, 3, generator=generator), torch.arange(size) % 4)


def keyed_cut(part):
    return th.fingerprint(part).keyed(KEY).cut


class Lazy(Dataset):
    """A dataset that counts how often it is read."""

    def __init__(self, size=50):
        self.size, self.reads = size, 0

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.reads += 1
        return self.value(index)

    def value(self, index):
        return float(index)


class Augmented(Lazy):
    def value(self, index):
        return torch.rand(3)


class Unknown(Lazy):
    def value(self, index):
        return object()


class TestParts:
    def test_the_parts_asked_for_in_order(self):
        assert [part.cut.part for part in th.split(data(), display=0.2)] == ["display", "rest"]
        assert [part.cut.part for part in th.split(data(), vault=0.5)] == ["vault", "rest"]
        parts = th.split(data(), vault=0.5, display=0.2)
        assert [(part.cut.part, len(part)) for part in parts] == [
            ("display", 20),
            ("vault", 50),
            ("rest", 30),
        ]

    @settings(max_examples=60, deadline=None)
    @given(
        size=st.integers(3, 80),
        display=st.floats(0.01, 0.6),
        vault=st.floats(0.01, 0.39) | st.none(),
        seed=st.integers(0, 2**63 - 1),
    )
    def test_every_example_is_in_one_part(self, size, display, vault, seed):
        wanted = [round(share * size) for share in (display, vault) if share is not None]
        if not all([*wanted, size - sum(wanted)]):
            with pytest.raises(InvalidArgumentError, match="leaves none for the"):
                th.split(list(range(size)), display=display, vault=vault, seed=seed)
            return
        parts = th.split(list(range(size)), display=display, vault=vault, seed=seed)
        assert [len(part) for part in parts[:-1]] == wanted
        assert sorted(index for part in parts for index in part.indices) == list(range(size))

    def test_only_the_seed_decides(self):
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = th.split(data(), display=0.2, seed=3)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(2)
        again = th.split(data(), display=0.2, seed=3)
        assert [part.indices for part in first] == [part.indices for part in again]
        assert first[0].indices != th.split(data(), display=0.2, seed=4)[0].indices

    def test_the_cut_of_a_seed_is_frozen(self):
        """Another version of a library that cuts otherwise would be another cut of every set."""
        display, rest = th.split(list(range(10)), display=0.3, seed=0)
        assert (display.indices, rest.indices) == FROZEN
        grouped = th.split(list(range(10)), display=0.3, seed=0, groups=[i // 2 for i in range(10)])
        assert sorted(grouped[0].indices) == FROZEN_GROUPED

    def test_a_part_is_a_subset(self):
        whole = data()
        display, rest = th.split(whole, display=0.2)
        assert isinstance(rest, Subset)
        assert torch.equal(rest[3][0], whole[rest.indices[3]][0])
        batches = list(DataLoader(display, batch_size=8))
        assert torch.equal(torch.cat([x for x, _ in batches]), whole.tensors[0][display.indices])

    @pytest.mark.integration
    def test_workers_read_a_part(self):
        display, _ = th.split(data(), display=0.2)
        loader = DataLoader(display, batch_size=8, num_workers=1, multiprocessing_context="spawn")
        assert sum(len(y) for _, y in loader) == 20

    def test_numbers_of_any_kind(self):
        expected = th.split(data(), display=0.25, seed=1)[0].indices
        for share, seed in ((Fraction(1, 4), 1), (np.float32(0.25), np.int64(1))):
            assert th.split(data(), display=share, seed=seed)[0].indices == expected


class TestTheCut:
    def test_its_text(self):
        display, vault, rest = th.split(data(), display=0.2, vault=0.1, seed=7)
        assert str(vault.cut) == "display 0.2, vault 0.1, seed 7, part vault"
        assert (rest.cut.seed, rest.cut.display, rest.cut.vault, rest.cut.groups) == (
            7,
            0.2,
            0.1,
            None,
        )
        assert str(th.split(data(), vault=0.5, groups=range(100))[0].cut) == (
            "vault 0.5, seed 0, groups together, part vault"
        )
        with pytest.raises(AttributeError):
            display.cut.seed = 1

    def test_pickles_and_copies_carry_it_without_hashes(self):
        _, rest = th.split(data(), display=0.2)
        content = pickle.dumps(rest)
        assert b"_fingerprints" not in content  # public paths only
        assert rest.cut.whole._hashes.tobytes()[:64] not in content
        again = pickle.loads(content)
        assert "not read" in repr(again.cut.whole)
        assert (again.cut, again.indices) == (rest.cut, rest.indices)
        assert keyed_cut(again) == keyed_cut(rest)
        for other in (copy.copy(rest), copy.deepcopy(rest)):
            assert keyed_cut(other) == keyed_cut(rest)

    def test_nothing_shows_a_hash(self):
        _, rest = th.split(data(), display=0.2)
        shown = f"{rest.cut!r} {rest.cut} {rest.cut.whole!r} {th.fingerprint(rest)!r}"
        assert not any(str(number) in shown for number in rest.cut.whole._hashes)
        assert "sealed" in repr(rest.cut.whole)

    def test_the_parts_of_a_cut_are_one_cut(self):
        parts = th.split(data(), display=0.2, vault=0.3)
        keyed = [keyed_cut(part) for part in parts]
        assert len({(cut.whole, cut.records) for cut in keyed}) == 1
        assert keyed[0].whole == th.fingerprint(data()).keyed(KEY).fingerprint

    @pytest.mark.parametrize(
        "other",
        [
            {"seed": 1},
            {"display": 0.21},
            {"vault": 0.1},
            {"groups": [i // 2 for i in range(100)]},
            {"reversed": True},
        ],
        ids=str,
    )
    def test_another_cut_of_the_same_whole(self, other):
        asked = {"display": 0.2, **other}
        whole = data()
        if asked.pop("reversed", False):
            whole = Subset(whole, list(reversed(range(100))))
        first, second = (
            keyed_cut(th.split(data(), display=0.2)[-1]),
            keyed_cut(th.split(whole, **asked)[-1]),
        )
        assert first.whole == second.whole
        assert first.records != second.records

    def test_the_guard_finds_the_records_of_a_registered_part(self):
        _, rest = th.split(data(), display=0.2)
        holdout = make_holdout(size=80, fingerprint=th.fingerprint(rest))
        compare_with_account(holdout, read(rest))
        with pytest.raises(th.HoldoutMismatchError, match="records of its fingerprint"):
            compare_with_account(holdout, read(th.split(data(), display=0.2, seed=1)[-1]))

    def test_rows_of_a_part_are_hashed_in_chunks(self):
        _, rest = th.split(data(), display=0.2)
        assert _Rows.of(rest) is not None
        slow = th.fingerprint([rest[i] for i in range(len(rest))])
        assert th.fingerprint(rest).keyed(KEY).fingerprint == slow.keyed(KEY).fingerprint


class TestGroups:
    @pytest.mark.parametrize("seed", range(5))
    def test_a_group_is_in_one_part(self, seed):
        parts = th.split(data(), display=0.2, vault=0.3, seed=seed, groups=LABELS)
        owners = [{LABELS[index] for index in part.indices} for part in parts]
        assert sum(map(len, owners)) == len(set().union(*owners)) == 17
        assert sum(map(len, parts)) == 100
        for part, wanted in zip(parts, (20, 30, 50), strict=True):
            assert abs(len(part) - wanted) <= 6  # the size of a group

    def test_labels_of_any_kind(self):
        numbers = [i % 17 for i in range(100)]
        forms = (numbers, np.array(numbers), torch.tensor(numbers), LABELS, iter(numbers),
                 [(n, "x") for n in numbers], np.array(LABELS, dtype=object))  # fmt: skip
        cuts = [[p.indices for p in th.split(data(), display=0.2, groups=form)] for form in forms]
        assert all(cut == cuts[0] for cut in cuts)

    def test_small_groups_are_drawn_as_often_as_large_ones(self):
        """A display of half: a group of one example is in about half of 200 cuts.

        The twin takes the groups as permuted examples name them, so that large ones come first.
        False alarms: none, the seeds are fixed.
        """
        labels = np.array([i for i in range(20) for _ in range(10 if i % 2 else 1)])
        whole = list(range(110))
        small = twins = 0
        for seed in range(200):
            display, _ = th.split(whole, display=0.5, seed=seed, groups=labels)
            small += 0 in labels[display.indices]
            named = labels[fixed_permutation(110, seed).numpy()]
            twin = list(dict.fromkeys(named.tolist()))  # in the order of first appearance
            filled = np.cumsum([(labels == group).sum() for group in twin])
            twins += 0 in [g for g, end in zip(twin, filled, strict=True) if end <= 55]
        assert 75 <= small <= 125
        assert twins < 50

    def test_one_giant_group(self):
        labels = [0] * 99 + [1]
        with pytest.raises(
            InvalidArgumentError, match=r"none is left for the vault.*2 groups has 99"
        ):
            th.split(data(), display=0.2, vault=0.2, groups=labels)
        with pytest.raises(InvalidArgumentError, match="none is left for the display"):
            th.split(data(), display=0.2, groups=[0] * 100)

    def test_a_part_far_from_its_share_is_told(self):
        with pytest.warns(HoldoutWarning, match="The display has 1 example instead of 20"):
            display, rest = th.split(data(), display=0.2, groups=[0] * 99 + [1])
        assert (display.indices, len(rest)) == ([99], 99)


class TestDuplicates:
    def whole(self):
        """Ten of a hundred records are there three times."""
        one = data()
        rows = [*range(100), *range(10), *range(10)]
        return Subset(one, rows)

    def test_copies_in_two_parts_are_refused(self):
        with pytest.raises(InvalidArgumentError, match=r"(\d+) records \((\d+) examples\) are in"):
            th.split(self.whole(), display=0.5)
        with pytest.raises(InvalidArgumentError, match=r"1 record \(2 examples\) is in several"):
            th.split([1.0, 1.0, 2.0], display=0.3, seed=self.tearing_seed())

    def tearing_seed(self):
        seeds = range(20)
        cuts = (th.split([0, 1, 2], display=0.3, seed=seed)[0].indices for seed in seeds)
        return next(seed for seed, display in zip(seeds, cuts, strict=True) if display != [2])

    def test_they_are_counted(self):
        with pytest.raises(InvalidArgumentError) as caught:
            th.split(self.whole(), display=0.5)
        display, _ = th.split(self.whole(), display=0.5, check_duplicates=False)
        watched = set(display.indices)
        copies = [{i, 100 + i, 110 + i} for i in range(10)]
        torn = [numbers for numbers in copies if numbers & watched and numbers - watched]
        assert f"{len(torn)} records ({3 * len(torn)} examples) are in several" in str(caught.value)

    @pytest.mark.parametrize("groups", ["records", [*range(100), *range(10), *range(10)]])
    def test_groups_keep_them_together(self, groups):
        parts = th.split(self.whole(), display=0.3, vault=0.3, groups=groups)
        prints = [th.fingerprint(part) for part in parts]
        assert [th.overlap(prints[0], other).shared for other in prints[1:]] == [0, 0]
        assert abs(len(parts[0]) - 36) <= 3

    def test_equal_records_are_together_in_any_order(self):
        whole = self.whole()
        other = Subset(whole, list(reversed(range(120))))
        first, second = (th.split(d, display=0.3, groups="records")[0] for d in (whole, other))
        assert th.overlap(first, second).share_of_first == 1

    def test_unchecked_reads_nothing_and_is_checked_before_it_is_registered(self):
        lazy = Lazy()
        _, rest = th.split(lazy, display=0.2, check_duplicates=False)
        assert lazy.reads == 0
        th.fingerprint(rest)
        assert lazy.reads == 40 + 50
        display, rest = th.split(self.whole(), display=0.5, check_duplicates=False)
        assert th.overlap(display, rest).shared > 0  # can be looked at
        with pytest.raises(InvalidArgumentError, match="are in several"):
            th.fingerprint(rest)

    def test_checked_records_are_read_once_by_the_cut_and_once_by_the_fingerprint(self):
        lazy = Lazy()
        _, rest = th.split(lazy, display=0.2)
        assert lazy.reads == 50
        th.fingerprint(rest)
        assert lazy.reads == 50 + 40

    def test_long_reading_is_told(self, monkeypatch, caplog):
        monkeypatch.setattr(cut_module, "_SLOW_SECONDS", -1.0)
        with caplog.at_level(logging.WARNING, logger="torch_holdout"):
            th.split(Lazy(), display=0.2)
        assert len(caplog.messages) == 1
        assert "reads all 50 examples" in caplog.text
        assert "check_duplicates=False" in caplog.text

    def test_reading_leaves_the_generators(self):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        th.split(Augmented(), display=0.2)
        assert torch.equal(torch.get_rng_state(), before)


class TestUnreadable:
    def test_records_without_a_hash(self):
        with pytest.warns(HoldoutWarning, match="hold a object.*were not looked for"):
            display, rest = th.split(Unknown(), display=0.2)
        assert (len(display), len(rest)) == (10, 40)
        with pytest.raises(InvalidArgumentError, match="but got a object"):
            th.fingerprint(rest)
        with (
            pytest.warns(HoldoutWarning),
            pytest.raises(InvalidArgumentError, match="groups='records'"),
        ):
            th.split(Unknown(), display=0.2, groups="records")

    def test_random_augmentation_is_not_registered(self):
        _, rest = th.split(Augmented(), display=0.2)
        with pytest.raises(InvalidArgumentError, match="changed between two readings"):
            th.fingerprint(rest)

    def test_a_transform_set_after_the_cut(self):
        """The fingerprint is that of the records as they are read now."""
        lazy = Lazy()
        _, rest = th.split(lazy, display=0.2)
        before = keyed_cut(rest)
        lazy.value = lambda index: float(-index)
        after = keyed_cut(rest)
        assert before.whole != after.whole
        assert after == keyed_cut(th.split(lazy, display=0.2)[1])

    def test_changed_indices_are_not_registered(self):
        _, rest = th.split(data(), display=0.2)
        rest.indices.pop()
        with pytest.raises(InvalidArgumentError, match="`indices` were changed"):
            th.fingerprint(rest)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


WRONG = {
    "no share": (data(), {}, "`display` or `vault`, or both"),
    "a share of all": (data(), {"display": 1.0}, "number between 0 and 1"),
    "a count": (data(), {"display": 20}, "number between 0 and 1"),
    "nothing": (data(), {"vault": 0.0}, "number between 0 and 1"),
    "NaN": (data(), {"display": float("nan")}, "number between 0 and 1"),
    "a flag": (data(), {"display": True}, "number between 0 and 1"),
    "text": (data(), {"display": "20%"}, "number between 0 and 1"),
    "a tensor": (data(), {"display": torch.tensor([0.2])}, "number between 0 and 1"),
    "no rest": (data(), {"display": 0.6, "vault": 0.4}, "display=0.6 and vault=0.4 are the whole"),
    "empty display": (data(), {"display": 0.001}, "leaves none for the display"),
    "empty vault": (data(), {"display": 0.2, "vault": 1e-9}, "leaves none for the vault"),
    "empty rest": (data(), {"display": 0.999}, "leaves none for the rest"),
    "one example": ([1], {"display": 0.5}, "leaves none for the display"),
    "empty dataset": ([], {"display": 0.5}, "length of at least one"),
    "a loader": (DataLoader(data()), {"display": 0.5}, r"Give loader\.dataset"),
    "a stream": (Stream(), {"display": 0.5}, "IterableDataset Stream"),
    "a number": (5, {"display": 0.5}, "integer indexing"),
    "a float seed": (data(), {"display": 0.5, "seed": 1.0}, "`seed` to be a whole number"),
    "a flag as seed": (data(), {"display": 0.5, "seed": True}, "`seed` to be a whole number"),
    "no seed": (data(), {"display": 0.5, "seed": None}, "`seed` to be a whole number"),
    "a negative seed": (data(), {"display": 0.5, "seed": -1}, "`seed` to be a whole number"),
    "few labels": (data(), {"display": 0.5, "groups": [1, 2]}, "but got 2 labels"),
    "endless labels": (data(), {"display": 0.5, "groups": itertools.count()}, "but got more"),
    "sparse labels": (data(), {"display": 0.5, "groups": torch.ones(9).to_sparse()}, "but got T"),
    "one label": (data(), {"display": 0.5, "groups": 3}, "one label for each example"),
    "a column's name": (data(), {"display": 0.5, "groups": "patient"}, "but got 'patient'"),
    "a set": (data(), {"display": 0.5, "groups": set(range(100))}, "but got set"),
    "missing labels": (data(), {"display": 0.5, "groups": [None] * 100}, "some are missing"),
    "NaN labels": (data(), {"display": 0.5, "groups": [float("nan")] * 100}, "some are missing"),
    "rows as labels": (data(), {"display": 0.5, "groups": torch.ones(100, 2)}, "several values"),
    "arrays as labels": (
        data(),
        {"display": 0.5, "groups": [np.ones(2)] * 100},
        "several values",
    ),
    "a scalar tensor": (data(), {"display": 0.5, "groups": torch.tensor(1)}, "one label for each"),
    "a flag as text": (data(), {"display": 0.5, "check_duplicates": "no"}, "True or False"),
    "a part": (th.split(data(), display=0.5)[1], {"vault": 0.5}, "not cut before"),
}  # fmt: skip


@pytest.mark.parametrize("which", WRONG)
def test_what_cannot_be_cut_is_refused_in_a_sentence(which):
    dataset, arguments, words = WRONG[which]
    with pytest.raises(InvalidArgumentError, match=words):
        th.split(dataset, **arguments)


def test_a_training_part_can_be_cut_again():
    train = th.split(data(), vault=0.5)[1]
    display, rest = th.split(Subset(train, range(len(train))), display=0.2)
    assert (len(display), len(rest)) == (10, 40)
    assert isinstance(rest, Part)
