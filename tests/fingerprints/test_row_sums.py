"""Sums by products of bytes are those of words; identities are those of ledgers from before."""

import pytest
import torch
from torch import nn
from torch_holdout._fingerprints import row_sums, weights
from torch_holdout._fingerprints.weights import weights_fingerprint

EXTREMES = [0, -1, 2**31 - 1, -(2**31), 0x007F7F7F, 0x7F7F7F7F, -0x7F7F7F80]


def identity(model):
    found = weights_fingerprint(model)
    return found.query(found.lanes.tolist())


def counted(length):
    words = torch.arange(length).mul_(0x9E3779B1).remainder_(2**32)
    return words.sub_(2**31).to(torch.int32)


def network():
    model = nn.Sequential(nn.Linear(700, 600), nn.LayerNorm(600), nn.Linear(600, 3).half())
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.arange(each.numel()).view(each.shape).remainder(8191) / 4096 - 1)
    return model


def expected(words):
    """The definition, in Python's integers."""
    bits = 2**64
    lanes = [[key % bits for key in lane] for lane in row_sums.keys(words.device).tolist()]
    found = []
    for lane in lanes:
        rows = [words[at : at + 1024].tolist() for at in range(0, len(words), 1024)]
        rows += [[]] * (len(words) % 1024 == 0)
        found.append(
            sum(
                mix(sum(x * k for x, k in zip(row, lane, strict=False)) + at * row_sums.STEP)
                for at, row in enumerate(rows)
            )
        )
    return [row_sums.signed(each % bits) for each in found]


def mix(word):
    word %= 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 1025, 9 * 1024 + 3])
def test_words_are_hashed_as_defined(length):
    words = counted(length)
    words[: len(EXTREMES)] = torch.tensor(EXTREMES, dtype=torch.int32)[:length]
    assert row_sums.content_lanes(words).tolist() == expected(words)


LENGTHS = [0, 1, 1023, 1024, 1025, 255 * 1024, 256 * 1024 - 1, 256 * 1024, 600 * 1024 + 5, 7]


@pytest.mark.skipif(not row_sums.bytes_are_exact(), reason="products of bytes are not exact here")
def test_bytes_and_words_have_the_same_hash():
    groups = [counted(length) for length in LENGTHS]
    groups += [torch.full((3000,), word, dtype=torch.int32) for word in EXTREMES]
    sums = row_sums.ByteSums()
    for words in groups:
        sums.add([words[:5], words[5:5000], words[5000:]])
    assert torch.equal(sums.lanes(), torch.stack([row_sums.content_lanes(each) for each in groups]))


@pytest.mark.parametrize("by_bytes", [True, False])
def test_identities_are_those_of_ledgers_from_before(by_bytes, monkeypatch):
    if not by_bytes:
        monkeypatch.setattr(weights, "bytes_are_exact", lambda: False)
    assert identity(network()) == "f5ef5d72ba81f7d25dea21074d10fe0f759bd418221334ae466005fffe6df775"


def test_products_that_saturate_or_are_missing_are_not_used(monkeypatch):
    def saturating(one, other):
        pairs = one.int().unflatten(1, (-1, 2)).unsqueeze(-1) * other.int().unflatten(0, (-1, 2))
        return pairs.sum(2).clamp(-(2**14), 2**14).sum(1).int()

    def missing(one, other):
        raise NotImplementedError

    monkeypatch.setattr(row_sums, "_ROWS_ON_CPU", 16)
    for product in (saturating, missing):
        monkeypatch.setattr(torch, "_int_mm", product)
        assert not row_sums.bytes_are_exact.__wrapped__()


def test_torch_has_its_threads_again():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        weights_fingerprint(nn.Linear(2, 2))
        assert torch.get_num_threads() == 2
        with row_sums.one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
