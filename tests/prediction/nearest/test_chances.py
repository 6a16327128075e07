"""The probability that a label wins, and how far one vote moves it, against enumeration."""

import itertools
import math

import pytest
import torch
from torch_holdout.prediction.nearest.chances import winner_sensitivity, winning_chances


def law(sigma, reach):
    weights = {x: math.exp(-(x**2) / (2 * sigma**2)) for x in range(-reach, reach + 1)}
    total = sum(weights.values())
    return {x: weight / total for x, weight in weights.items()}


def enumerated(counts, label, sigma, margin):
    """Go through all noises; the first of the largest wins, if it is clear enough."""
    total = 0.0
    for noise in itertools.product(law(sigma, 9).items(), repeat=len(counts)):
        noisy = [count + x for count, (x, _) in zip(counts, noise, strict=True)]
        first, second = sorted(noisy, reverse=True)[:2]
        if noisy.index(first) == label and first - second >= margin:
            total += math.prod(chance for _, chance in noise)
    return total


@pytest.mark.parametrize("margin", [0, 1, 3])
def test_chances_are_those_of_the_enumeration(margin):
    counts = torch.tensor([[3, 1, 2], [0, 0, 0], [0, 6, 0], [2, 2, 1]])
    for label in range(3):
        computed = winning_chances(counts, torch.full((4,), label), 1.0, margin)
        expected = [enumerated(row, label, 1.0, margin) for row in counts.tolist()]
        assert computed.tolist() == pytest.approx(expected, abs=1e-12)


def test_some_label_wins():
    counts = torch.randint(0, 50, (20, 7), generator=torch.Generator().manual_seed(2))
    total = sum(winning_chances(counts, torch.full((20,), label), 13.0) for label in range(7))
    assert total.tolist() == pytest.approx([1.0] * 20, abs=1e-12)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0, 20.0])
def test_the_sensitivity_is_the_total_variation_of_the_noise(sigma):
    noise = law(sigma, math.ceil(10 * sigma))
    moved = sum(
        max(0.0, p * q - noise.get(x - 1, 0.0) * noise.get(y + 1, 0.0))
        for (x, p), (y, q) in itertools.product(noise.items(), repeat=2)
    )
    assert winner_sensitivity(sigma) == pytest.approx(moved, rel=1e-8)
    assert winner_sensitivity(sigma) >= moved


@pytest.mark.parametrize("margin", [0, 2])
def test_no_vote_moves_a_chance_by_more(margin):
    """Every vote of every small table that comes, goes or changes; the bound is nearly reached."""
    tables = [list(row) for row in itertools.product(range(5), repeat=3)]
    counts = torch.tensor(tables)
    largest = 0.0
    for label in range(3):
        chances = winning_chances(counts, torch.full((len(tables),), label), 1.0, margin)
        known = dict(zip(map(tuple, tables), chances.tolist(), strict=True))
        for row, chance in known.items():
            for here, there in itertools.product(range(3), repeat=2):
                moved = list(row)
                moved[here] += 1
                other = known.get(tuple(moved))
                moved[there] -= 1
                both = known.get(tuple(moved))
                largest = max([largest, *(abs(chance - x) for x in (other, both) if x is not None)])
    assert 0.7 * winner_sensitivity(1.0) < largest <= winner_sensitivity(1.0)
