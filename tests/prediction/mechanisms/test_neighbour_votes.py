"""The nearest of a fresh sample vote: the law of the counts, of the answers, and their charge."""

import itertools
import math

import pytest
import torch
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.accounting import SampledGaussian
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction import NeighbourVotes, PrivacyBudget
from torch_holdout.prediction.mechanisms import NO_CONSENSUS, Setting
from torch_holdout.prediction.nearest.chances import winning_chances

from support.oracles.chi_square import fits

SETTING = Setting(num_parts=1, num_outputs=3)
NEAREST = [2, 0, 1, 1, 0, 2, 2]  # labels of seven records, the nearest first
DRAWS = 40_000


def listed(mechanism, labels, rows):
    padded = labels + [-1] * (mechanism.reach - len(labels))
    return torch.tensor(padded[: mechanism.reach], dtype=torch.int32).expand(rows, -1)


def counted(labels, coins, k):
    """Count the k nearest of the sample that these coins choose, as it is defined."""
    sample = [label for label, coin in zip(labels, coins, strict=True) if coin][:k]
    return tuple(sample.count(label) for label in range(3))


def law_of_counts(labels, rate, k):
    law = {}
    for coins in itertools.product((False, True), repeat=len(labels)):
        chance = math.prod(rate if coin else 1 - rate for coin in coins)
        counts = counted(labels, coins, k)
        law[counts] = law.get(counts, 0.0) + chance
    return law


def drawn_counts(mechanism, seed=1):
    uniforms = SeededNoise(seed).uniforms("coins")
    table = listed(mechanism, NEAREST, DRAWS)
    return map(tuple, mechanism.sampled_counts(table, 3, uniforms).tolist())


@pytest.mark.parametrize(("rate", "k"), [(0.5, 2), (0.3, 5), (0.8, 1), (0.2, 9)])
def test_counts_have_the_law_of_a_sample_of_all_records(rate, k):
    """Chi-square, false alarms 1e-6, against all samples; tossing lazily is the same law."""
    mechanism = NeighbourVotes(rate=rate, k=k, sigma=2.0)
    assert fits(drawn_counts(mechanism), law_of_counts(NEAREST, rate, k))


@pytest.mark.parametrize("twin", [{"rate": 0.52, "k": 2}, {"rate": 0.5, "k": 3}])
def test_twin_of_another_rate_or_number_of_votes_is_caught(twin):
    mechanism = NeighbourVotes(**twin, sigma=2.0)
    assert not fits(drawn_counts(mechanism), law_of_counts(NEAREST, 0.5, 2))


def test_each_query_has_a_sample_of_its_own():
    """Two rows of one batch, the same query twice: pairs of counts have the product of the law."""
    mechanism = NeighbourVotes(rate=0.5, k=2, sigma=2.0)
    counts = list(drawn_counts(mechanism))
    law = law_of_counts(NEAREST, 0.5, 2)
    both = {(a, b): p * q for (a, p), (b, q) in itertools.product(law.items(), repeat=2)}
    pairs = list(zip(counts[::2], counts[1::2], strict=True))
    assert fits(pairs, both)
    shared = [(a, a) for a, _ in pairs]  # the twin: one sample for two queries
    assert not fits(shared, both)


def test_without_sampling_no_coin_is_tossed():
    mechanism = NeighbourVotes(rate=1.0, k=4, sigma=2.0)
    counts = mechanism.sampled_counts(listed(mechanism, NEAREST, 5), 3, None)
    assert counts.tolist() == [[1, 2, 1]] * 5


@pytest.mark.parametrize("margin", [0, 2])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_answers_have_their_law(rate, margin):
    """Chi-square, false alarms 1e-6: integer Gaussian noise on the counts of all samples."""
    mechanism = NeighbourVotes(rate=rate, k=4, sigma=2.0, margin=margin)
    cases = law_of_counts(NEAREST, rate, 4) if rate < 1 else {(1, 2, 1): 1.0}
    counts = torch.tensor(list(cases))
    chances = torch.tensor(list(cases.values()), dtype=torch.float64)
    law = {
        label: float(
            chances @ winning_chances(counts, torch.full((len(cases),), label), 2.0, margin)
        )
        for label in range(3)
    }
    law[NO_CONSENSUS] = max(0.0, 1 - sum(law.values()))
    table = listed(mechanism, NEAREST, DRAWS)
    answers = mechanism.answer(table, SETTING, SeededNoise(2).uniforms("answers")).tolist()
    assert fits(answers, law)
    quiet = NeighbourVotes(rate=rate, k=4, sigma=1.4, margin=margin)  # the twin with less noise
    answers = quiet.answer(table, SETTING, SeededNoise(2).uniforms("answers")).tolist()
    assert not fits(answers, law)


def test_one_record_moves_one_vote_and_only_if_it_is_in_the_sample():
    """All coins, all places of one record more: what the charge assumes, of squared length 2."""
    largest = 0
    for place, k in itertools.product(range(len(NEAREST)), (1, 2, 4, 7)):
        others = NEAREST[:place] + NEAREST[place + 1 :]
        for coins in itertools.product((False, True), repeat=len(NEAREST)):
            more = counted(NEAREST, coins, k)
            less = counted(others, coins[:place] + coins[place + 1 :], k)
            moved = sum((a - b) ** 2 for a, b in zip(more, less, strict=True))
            assert moved <= 2 * coins[place]
            largest = max(largest, moved)
    assert largest == 2


def test_charge_identity_and_error():
    mechanism = NeighbourVotes(rate=0.2, k=60, sigma=14)
    assert mechanism.charge(SETTING) == SampledGaussian(0.2, 14.0)
    assert mechanism.identity() == {
        "kind": "neighbour_votes", "rate": 0.2, "k": 60, "sigma": 14.0, "margin": 0,
    }  # fmt: skip
    assert 2.0**-60 <= mechanism.sampler_error(SETTING) < 1e-16
    assert NeighbourVotes(rate=1.0, k=60, sigma=14.0).sampler_error(SETTING) < 1e-16
    assert NeighbourVotes(rate=0.2, k=60, sigma=14, margin=9).charge(SETTING) == SampledGaussian(
        0.2, 14.0
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0.0}, {"rate": 1.1}, {"k": 0}, {"k": 2.5}, {"sigma": 0.0}, {"sigma": 1e9},
        {"margin": -1}, {"margin": 0.5}, {"rate": float("nan")}, {"rate": 1e-4, "k": 60_000},
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        NeighbourVotes(**{"rate": 0.5, "k": 5, "sigma": 3.0, **wrong})


@pytest.mark.parametrize("rate", [None, 0.2])
def test_a_budget_pays_for_what_was_asked(rate):
    public = {"queries": 300, "planned_records": 3500, "num_classes": 10}
    mechanism = NeighbourVotes.for_budget(epsilon=2.0, delta=1e-5, rate=rate, margin=4, **public)
    bought = PrivacyBudget(epsilon=2.0, delta=1e-5).queries_for(mechanism.charge(SETTING))
    assert 300 <= bought <= 301
    assert mechanism.margin == 4
    assert rate is None or mechanism.rate == rate


def test_a_table_of_another_length_is_refused():
    mechanism = NeighbourVotes(rate=1.0, k=4, sigma=2.0)
    with pytest.raises(InvalidArgumentError, match="nearest 4 records"):
        mechanism.table(torch.zeros(1, 5, 3))
