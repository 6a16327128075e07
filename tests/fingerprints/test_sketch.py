"""Sketches choose records alike, so that shares can be estimated."""

import math

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch.utils.data import Subset, TensorDataset
from torch_holdout._fingerprints.sketch import KEPT, RANGE, Sketch

KEY = b"k" * 32


def data(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(size, 2, generator=generator))


def keyed(dataset, key=KEY):
    return th.fingerprint(dataset).keyed(key)


def sketch(dataset, key=KEY):
    found = keyed(dataset, key)
    return Sketch.of(found.hashes, found.size)


def test_small_data_is_kept_whole():
    found = sketch(data(KEPT))
    assert found.exact
    assert len(found.hashes) == found.distinct == KEPT
    assert not sketch(data(KEPT + 1)).exact


@pytest.mark.parametrize("size", [1025, 5_000, 50_000])
def test_about_a_thousand_records_of_large_data_are_kept(size):
    """All below the bound and no other; within six standard deviations (2e-9) of 1,024."""
    whole = keyed(data(size)).hashes
    found = Sketch.of(whole, size)
    assert found.distinct == size
    assert np.array_equal(found.hashes, whole[whole < found.bound])
    assert abs(len(found.hashes) - KEPT) <= 6 * math.sqrt(KEPT)
    assert len(found.content()) == 8 * len(found.hashes)


def test_it_comes_back_from_its_bytes():
    found = sketch(data(3_000))
    again = Sketch.stored(found.size, found.bound, found.content())
    assert np.array_equal(again.hashes, found.hashes)
    assert (again.size, again.bound) == (found.size, found.bound)
    assert max(found.hashes) < found.bound <= RANGE < 2**63


def test_another_key_keeps_other_hashes():
    assert not set(sketch(data(50)).hashes) & set(sketch(data(50), b"x" * 32).hashes)
    assert "hashes" not in repr(sketch(data(50)))


def replaced(size, share):
    """The first dataset with a share of its records replaced."""
    kept = round(size * (1 - share))
    return [*Subset(data(size), range(kept)), *Subset(data(size, seed=1), range(size - kept))]


def estimate_is_off(found, truth, compared):
    """Whether an estimate is beyond six standard errors (2e-9); exact for small data."""
    error = math.sqrt(truth * (1 - truth) / compared)
    return abs(found - truth) > 6 * error


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_shares_are_estimated(share):
    common = sketch(data(20_000)).compared_with(keyed(replaced(20_000, share)).hashes)
    assert not estimate_is_off(common.share_of_given, 1 - share, common.given)
    assert not estimate_is_off(common.share_of_kept, 1 - share, common.kept)
    small = sketch(data(1_000)).compared_with(keyed(replaced(1_000, share)).hashes)
    assert small.exact
    assert small.share_of_given == pytest.approx(1 - share)


def test_twin_that_keeps_the_first_records_is_caught():
    """A sketch of the records with the smallest numbers says nothing about the others."""
    whole, other = data(20_000), replaced(20_000, 0.3)
    first = keyed(Subset(whole, range(KEPT))).hashes
    there = keyed(other[:KEPT]).hashes
    share = len(np.intersect1d(first, there)) / len(there)
    assert estimate_is_off(share, 0.7, KEPT)


def test_foreign_data_has_nothing_in_common():
    common = sketch(data(20_000)).compared_with(keyed(data(20_000, seed=1)).hashes)
    assert common.both == 0
    assert common.given > 800


def test_a_part_can_be_checked():
    """Every record of the data that falls below the bound is in the sketch."""
    whole = data(20_000)
    part = keyed(Subset(whole, range(0, 20_000, 7))).hashes
    common = sketch(whole).compared_with(part)
    assert common.both == common.given > 80


def test_repeats():
    found = sketch([1, 1, 2, 2])
    assert (found.distinct, found.repeats) == (2, 0.5)
