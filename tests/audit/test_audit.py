"""The audits flag nothing of ours and every broken twin."""

import collections
import importlib
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.audit import (
    Row,
    audit,
    epsilon_lower_bound,
    neighbours,
    predictions,
    private_runs,
)
from torch_holdout.audit.exact import Game, Step
from torch_holdout.audit.holdouts import budget_rows, exact_rows, sampled_rows
from torch_holdout.audit.predictions import prediction_rows
from torch_holdout.audit.private_runs import exact_runs, run_rows, sampled_runs
from torch_holdout.audit.twins import RUN_FAULTS
from torch_holdout.bounds.single_query import clopper_pearson
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import LaplaceMechanism, SparseVector
from torch_holdout.prediction.mechanisms import NeighbourVotes, PermuteAndFlip, SoftMajority

from support.oracles.laws import round_law
from support.oracles.prediction_laws import permute_and_flip, soft_majority

TWINS = {
    "threshold redrawn per query",
    "no threshold noise",
    "answer noise 10 % too small",
    "noise reused",
    "one threshold for two units values",
    "budget off by one",
}


def test_exact_laws():
    rows = exact_rows()
    assert [row.subject for row in rows if not row.right] == []
    claims = [row for row in rows if not row.twin and row.what != "two units values"]
    assert all(row.measured > 0.99 * row.claimed for row in claims)  # the claims are tight
    assert {row.subject for row in rows if row.twin} >= TWINS - {"budget off by one"}


def test_budgets():
    assert all(row.right for row in budget_rows())
    assert {row.subject for row in budget_rows() if row.twin} == {"budget off by one"}


@pytest.mark.statistical
def test_samples():
    rows = sampled_rows(SeededNoise(1), draws=20_000, failure=1e-6)
    assert [row.subject for row in rows if not row.right] == []
    assert sum(row.twin for row in rows) == 4


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(20))
def test_no_false_alarm_with_few_draws(seed):
    rows = sampled_rows(SeededNoise(100 + seed), draws=300, failure=1e-6)
    assert [row.subject for row in rows if row.flagged and not row.twin] == []


def test_exact_runs():
    ours, *twins = exact_runs()
    assert ours.right
    assert ours.measured > 0.9999 * ours.claimed  # the claim is tight
    assert [row.subject for row in twins] == list(RUN_FAULTS)
    assert [row.subject for row in twins if not row.measured > 1.1 * row.claimed] == []


@pytest.mark.statistical
def test_runs():
    rows = sampled_runs(SeededNoise(1), draws=20_000, failure=2.5e-7)
    assert [row.subject for row in rows if not row.right] == []
    assert {row.subject for row in rows if row.twin} == {
        "comparison noise 10 % too small",
        "choice noise 10 % too small",
        "choice noise halved",
    }
    assert sum(not row.twin for row in rows) == private_runs._RIGHT  # these share the rate


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(10))
def test_no_false_alarm_of_runs_with_few_draws(seed):
    rows = run_rows(SeededNoise(300 + seed), draws=300, failure=2.5e-7)
    assert [row.subject for row in rows if row.flagged and not row.twin] == []


PREDICTION_TWINS = {
    "weights exp(epsilon * votes)",
    "coins exp(epsilon * votes)",
    "Gaussian votes, noise 10 % too small",
    "half of the check's noise",
    "abstentions refunded",
    "laplace mean, noise 10 % too small",
    "gaussian mean, noise 10 % too small",
    "half of the noise of values",
    "half of the noise of vectors",
    "half of the noise of scores",
}


def test_exact_predictions():
    rows = predictions.exact_predictions()
    assert [row.subject for row in rows if not row.right] == []
    soft, flip = rows[:2]
    assert soft.measured == pytest.approx(soft.claimed, rel=1e-9)  # exact: not a digit to spare
    assert flip.measured > 0.95 * flip.claimed


def test_exact_prediction_laws_agree_with_independent_ones():
    """The laws that the mechanisms' own code gives for every number it can draw."""
    soft = predictions._soft_law(SoftMajority(eta=0.3))
    flip = predictions._flip_law(PermuteAndFlip(epsilon=0.6))
    for place, votes in enumerate(predictions._votes().tolist()):
        expected = list(soft_majority(votes, 0.3).values())
        assert soft[place].tolist() == pytest.approx(expected, rel=1e-12)
        expected = list(permute_and_flip(votes, 0.6).values())
        assert flip[place].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", [1, 2])
def test_predictions(seed):
    rows = prediction_rows(SeededNoise(seed), draws=20_000, failure=2.5e-7)
    assert [row.subject for row in rows if not row.right] == []
    assert {row.subject for row in rows if row.twin} == PREDICTION_TWINS
    ours = [row for row in rows if row.evidence == "sampled" and not row.twin]
    assert len(ours) == predictions._RIGHT  # as many share the false-alarm rate


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(10))
def test_no_false_alarm_of_predictions_with_few_draws(seed):
    rows = prediction_rows(SeededNoise(200 + seed), draws=300, failure=2.5e-7)
    assert [row.subject for row in rows if row.flagged and not row.twin] == []


def test_exact_neighbours():
    rows = neighbours.exact_neighbours()
    assert [row.subject for row in rows if not row.right] == []
    assert rows[0].measured > 0.999 * rows[0].claimed  # the claim is tight
    twins = {row.subject: row.measured / row.claimed for row in rows if row.twin}
    assert set(twins) == {"no sampling", "one sample for all queries", "noise for one vote"}
    assert min(twins.values()) > 1.02


def test_counts_of_samples_agree_with_independent_ones():
    """The mechanism's own code over all coins, and the nearest of every subset by hand."""
    labels = (1, 0, 0, 1, 1)
    for rate, votes in ((0.25, 1), (0.5, 3), (1.0, 2)):
        by_hand = collections.Counter()
        for heads in itertools.product((0, 1), repeat=len(labels)):
            voting = [label for label, head in zip(labels, heads, strict=True) if head][:votes]
            chance = rate ** sum(heads) * (1 - rate) ** (len(labels) - sum(heads))
            by_hand[voting.count(0), voting.count(1)] += chance
        found = neighbours.sampled_pmf(NeighbourVotes(rate=rate, k=votes, sigma=1.0), labels)
        for counts, chance in by_hand.items():
            assert found.get(counts, 0.0) == pytest.approx(chance, abs=1e-15)
    independent = neighbours.sampled_pmf(NeighbourVotes(rate=0.5, k=1, sigma=1.0), (0, 1), 2)
    one = neighbours.sampled_pmf(NeighbourVotes(rate=0.5, k=1, sigma=1.0), (0, 1))
    for first, second in itertools.product(one, one):
        assert independent[first + second] == pytest.approx(one[first] * one[second])


@pytest.mark.statistical
@pytest.mark.parametrize("seed", [1, 2])
def test_neighbours(seed):
    rows = neighbours.neighbour_rows(SeededNoise(seed), draws=20_000, failure=1.25e-7)
    assert [row.subject for row in rows if not row.right] == []
    ours = [row for row in rows if row.evidence == "sampled" and not row.twin]
    assert len(ours) == neighbours.RIGHT  # as many share the false-alarm rate
    assert sum(row.twin for row in rows) == 7


def test_enumeration_agrees_with_an_independent_one():
    """The law of a round, from the mechanism's own code and written out by hand."""
    mechanism = SparseVector(threshold=1 / 3, sigma=0.1)
    steps = (Step((1, 2)), Step((3, 3)), Step((0, 1)))
    from fractions import Fraction

    game = Game(mechanism, steps, units=3, grid=3, guess=Fraction(1, 3))
    for side, totals in ((0, (1, 3, 0)), (1, (2, 3, 1))):
        by_hand = round_law(totals, guess=1, threshold=1, levels=3, grid=3, scale=0.3)
        found = game.law(side)
        for (position, index), probability in by_hand.items():
            outcome = None if position is None else (position, index)
            assert found.get(outcome, 0.0) == pytest.approx(probability, abs=1e-7)


def test_answers_on_different_sides_of_the_claim():
    assert Game(LaplaceMechanism(epsilon=0.5), (Step((1, 2)),), guess=None).loss() <= 0.5 + 1e-6
    assert Game(LaplaceMechanism(epsilon=0.6), (Step((1, 2)),), guess=None).loss() > 0.55


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.data(), st.floats(1e-9, 0.3))
def test_clopper_pearson_is_scipys(trials, data, failure):
    successes = data.draw(st.integers(0, trials))
    low, high = clopper_pearson(successes, trials, failure)
    interval = stats.binomtest(successes, trials).proportion_ci(1 - failure, method="exact")
    assert low == pytest.approx(interval.low, rel=1e-6, abs=1e-12)
    assert high == pytest.approx(interval.high, rel=1e-6, abs=1e-12)


def test_the_bound_on_epsilon_is_a_bound():
    """Two coins of 0.7 and 0.3: the truth is ln(7/3); the bound is below it and not far."""
    import numpy as np

    generator = np.random.default_rng(0)
    first, second = ((generator.random(40_000) < p).astype(int).tolist() for p in (0.7, 0.3))
    found = epsilon_lower_bound(first, second, 1e-6)
    assert 0.7 < found < math.log(7 / 3)
    assert epsilon_lower_bound(first, first, 1e-6) < 0


def test_rows_know_what_is_right():
    assert Row("ours", "exact", "x", 1.0, 1.0005).right
    assert not Row("ours", "exact", "x", 1.0, 1.1).right
    assert Row("twin", "sampled", "x", 1.0, 1.1, twin=True).right
    assert not Row("twin", "sampled", "x", 1.0, 0.9, twin=True).right


@pytest.mark.parametrize("change", [{"draws": 1}, {"draws": 2.5}, {"failure": 0}, {"failure": 2}])
def test_bad_arguments(change):
    with pytest.raises(InvalidArgumentError):
        audit(**change)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("budget_rows", "holdouts"),
        ("exact_rows", "holdouts"),
        ("prediction_rows", "predictions"),
        ("sampled_rows", "holdouts"),
    ],
)
def test_names_that_left_are_found_with_a_warning(name, home):
    package = importlib.import_module("torch_holdout.audit")
    with pytest.warns(DeprecationWarning, match=f"use torch_holdout.audit.{home}.{name}"):
        moved = getattr(package, name)
    assert moved is getattr(getattr(package, home), name)
    assert package.__all__ == ["Row", "audit", "epsilon_lower_bound"]
