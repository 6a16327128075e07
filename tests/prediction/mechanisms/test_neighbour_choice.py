"""How a budget becomes votes and noise: valid, never worse by sampling, good on several tasks."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout._noise.gaussian_table import LARGEST_TABLE_SCALE
from torch_holdout.accounting import (
    SampledGaussian,
    compose,
    largest_parameter,
    queries_for,
    sampled_gaussian_rdp,
)
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.mechanisms.neighbour_choice import (
    MOST_NEIGHBOURS,
    SMALLEST_SIGMA,
    choose_neighbours,
    neighbours_for,
)

DELTA = 1e-5
EXTREMES = list(
    itertools.product((0.01, 1.0, 100.0), (1, 1_000_000), (10, 3500, 10**8), (2, 10, 1000))
)


def choose(**changes):
    given = {"epsilon": 2.0, "delta": DELTA, "queries": 300}
    return choose_neighbours(**given | {"planned_records": 3500, "num_classes": 10} | changes)


@pytest.mark.parametrize(("epsilon", "queries", "records", "classes"), EXTREMES)
def test_extremes(epsilon, queries, records, classes):
    """A usable choice that the budget pays for, also where it is hopeless."""
    rate, k, sigma = choose(
        epsilon=epsilon, queries=queries, planned_records=records, num_classes=classes
    )
    assert 0.01 <= rate <= 1
    assert 1 <= k <= min(records, MOST_NEIGHBOURS)
    assert SMALLEST_SIGMA <= sigma <= LARGEST_TABLE_SCALE
    charge = SampledGaussian(rate, sigma)
    assert queries_for(charge, epsilon, DELTA) >= queries
    if sigma > SMALLEST_SIGMA and rate == 1:  # and no more noise than it has to be
        assert queries_for(SampledGaussian(rate, sigma * (1 - 1e-6)), epsilon, DELTA) < queries


def test_deterministic_and_from_public_numbers():
    assert choose() == choose()
    with pytest.raises(TypeError):
        choose(records=[])


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-4, 1), st.floats(0.5, 1e5), st.integers(2, 256))
def test_a_sample_never_costs_less_than_all_records_with_as_much_noise(rate, sigma, order):
    """Jensen's inequality: what the choice of all records rests on."""
    assert sampled_gaussian_rdp(rate, sigma)(order) >= order * (rate / sigma) ** 2


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
@pytest.mark.parametrize("queries", [10, 3000])
def test_sampling_buys_no_signal(epsilon, queries):
    """Votes for each unit of noise, from a fixed number of neighbours: most without sampling."""

    def signal(rate):
        return rate * largest_parameter(
            lambda sharpness: SampledGaussian(rate, 1 / sharpness), queries, epsilon, DELTA
        )

    everyone = signal(1.0)
    assert all(signal(rate) <= everyone * (1 + 1e-9) for rate in (0.9, 0.5, 0.1, 0.01))
    assert choose(epsilon=epsilon, queries=queries).rate == 1


def test_all_records_vote_unless_their_noise_cannot_be_drawn():
    large = choose(epsilon=0.01, queries=1_000_000)
    assert large.rate < 1
    assert not queries_for(SampledGaussian(1.0, LARGEST_TABLE_SCALE), 0.01, DELTA) >= 1_000_000
    fixed = choose(rate=0.2)
    assert fixed.rate == 0.2
    assert fixed.k < choose().k
    total = SampledGaussian(0.2, fixed.sigma, 300)
    assert compose([total], DELTA).epsilon <= 2.0 * (1 + 1e-9)


def test_votes_grow_with_the_noise_up_to_a_limit():
    noises = [0.5 * 1.5**k for k in range(30)]
    votes = [neighbours_for(noise, 3500, 10) for noise in noises]
    assert votes == sorted(votes)
    assert votes[0] == pytest.approx((4 + 2 * math.log(10)) * 0.5, rel=0.01)
    assert votes[-1] == pytest.approx(350 * math.log(10))
    assert neighbours_for(1e9, 10, 1000) == 1
    assert neighbours_for(1e9, 10**9, 1000) == MOST_NEIGHBOURS


def task(name):
    """Labels in order of nearness, the right labels and the number of classes."""
    from sklearn.datasets import load_breast_cancer, load_digits, make_classification

    if name == "table":
        x, y = make_classification(
            2000, n_informative=8, n_classes=3, n_clusters_per_class=2, random_state=1
        )
    else:
        x, y = (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True)
    points, labels = torch.tensor(x), torch.tensor(y)
    points = points / points.abs().amax(dim=0).clamp(min=1e-9)
    points = torch.nn.functional.normalize(points, dim=1)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(3))
    asked, kept = order[:150], order[150:]
    nearest = (points[asked] @ points[kept].T).argsort(dim=1, descending=True)
    return labels[kept][nearest], labels[asked], int(y.max()) + 1


def expected_accuracy(nearest, right, classes, votes, noise):
    """Mean probability of the right label, over 40 draws of the noise for each query."""
    counts = torch.nn.functional.one_hot(nearest[:, :votes], classes).sum(dim=1)
    generator = torch.Generator().manual_seed(9)
    drawn = noise * torch.randn(40, *counts.shape, generator=generator)
    return float(((counts + drawn).argmax(dim=2) == right).double().mean())


def regrets(nearest, right, classes, rule):
    """How far the rule's accuracy is below the best number of votes, at six levels of noise."""
    size = nearest.shape[1]
    for level in (0.01, 0.03, 0.1, 0.2, 0.4, 0.8):
        noise = level * size / classes
        grid = {max(1, min(size, round(size / classes * 1.35**k))) for k in range(-12, 5)}
        best = max(expected_accuracy(nearest, right, classes, k, noise) for k in grid)
        votes = round(rule(noise, size, classes))
        yield best - expected_accuracy(nearest, right, classes, votes, noise)


@pytest.mark.parametrize("name", ["digits", "breast cancer", "table"])
def test_close_to_the_best_number_of_votes(name):
    """Always few votes, or always many, is caught."""
    found = list(regrets(*task(name), neighbours_for))
    assert max(found) < 0.05
    for twin in (lambda *_: 5, lambda _, size, classes: size * 0.9):
        assert max(regrets(*task(name), twin)) > 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.0},
        {"delta": 0.0},
        {"delta": None},
        {"queries": 0},
        {"planned_records": 0},
        {"planned_records": 3.5},
        {"num_classes": 1},
        {"rate": 0.0},
        {"rate": 1.5},
        {"epsilon": 1e-9, "delta": 1e-12},
    ],
)
def test_bad_arguments(changes):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        choose(**changes)
