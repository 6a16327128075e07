"""The exact cost of a soft majority, against full enumeration in forty digits."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.accounting import (
    Concentrated,
    Pure,
    SoftVote,
    compose,
    compose_mixed,
    expected_accuracy_sensitivity,
    soft_majority_epsilon,
    soft_majority_rdp,
)
from torch_holdout.accounting.rdp import rdp_of_pure
from torch_holdout.errors import InvalidArgumentError

ORDERS = (1.00001, 1.5, 2.0, 5.0, 40.0, 1e6)
ETAS = (1e-6, 1e-3, 0.05, 0.3, 1.0, 3.0, 20.0)


def vectors(parts, classes):
    if classes == 1:
        yield (parts,)
        return
    for first in range(parts + 1):
        for rest in vectors(parts - first, classes - 1):
            yield (first, *rest)


def neighbours(parts, classes):
    """Every way to move one vote, up to the names of the classes: from class 0 to class 1."""
    for votes in vectors(parts, classes):
        if votes[0] and votes[2:] == tuple(sorted(votes[2:])):
            yield votes, (votes[0] - 1, votes[1] + 1, *votes[2:])


def log_law(votes, eta):
    weights = [mp.exp(mp.mpf(eta) * v) for v in votes]
    total = mp.log(mp.fsum(weights))
    return [mp.mpf(eta) * v - total for v in votes]


def pairs_of_laws(eta, parts, classes):
    with mp.workdps(40):
        return [
            (log_law(before, eta), log_law(after, eta))
            for before, after in neighbours(parts, classes)
        ]


def enumerated_epsilon(laws):
    return max(abs(p - q) for one, other in laws for p, q in zip(one, other, strict=True))


def enumerated_divergence(laws, order):
    """The largest Renyi divergence of all pairs, both directions."""
    with mp.workdps(40):
        order = mp.mpf(order)
        return max(
            mp.log(mp.fsum(mp.exp(order * p + (1 - order) * q) for p, q in zip(*pair, strict=True)))
            for one, other in laws
            for pair in ((one, other), (other, one))
        ) / (order - 1)


CASES = [(2, 1), (2, 2), (2, 8), (3, 1), (3, 5), (3, 8), (4, 2), (4, 8), (5, 6), (7, 5)]


@pytest.mark.parametrize(("classes", "parts"), CASES)
@pytest.mark.parametrize("eta", ETAS)
def test_enumeration(classes, parts, eta):
    laws = pairs_of_laws(eta, parts, classes)
    epsilon = soft_majority_epsilon(eta, parts, classes)
    assert abs(epsilon / enumerated_epsilon(laws) - 1) <= 1e-9
    curve = soft_majority_rdp(eta, parts, classes)
    for order in ORDERS:
        ratio = curve(order) / enumerated_divergence(laws, order)
        assert 1 - 1e-9 <= ratio <= 1.02
        simple = min(order * eta**2 / 2, rdp_of_pure(epsilon)(order), epsilon)
        assert curve(order) <= simple * (1 + 1e-12)


@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize(("parts", "classes"), [(12, 4), (20, 3), (10, 12)])
def test_the_bound_stays_close_with_more_votes(eta, parts, classes):
    laws = pairs_of_laws(eta, parts, classes)
    curve = soft_majority_rdp(eta, parts, classes)
    for order in (1.5, 4.0, 30.0):
        assert 1 - 1e-9 <= curve(order) / enumerated_divergence(laws, order) <= 1.02


def two_label_curve(eta, parts, order):
    """The broken twin: as if all votes were on the two classes, and no other class existed."""
    on_a = np.arange(1, parts + 1)
    p = 1 / (1 + np.exp(-eta * (2 * on_a - parts)))
    q = 1 / (1 + np.exp(-eta * (2 * on_a - 2 - parts)))
    sums = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
    return float(np.log(sums).max() / (order - 1))


def test_twin_scans_that_undercount_are_caught():
    """Without the other classes a tie of an odd number of votes does not exist."""
    found = []
    for eta, parts, classes, order in itertools.product(
        (0.5, 1.0, 2.0), (2, 3, 5, 7), (3, 4), (1.5, 3.0, 10.0)
    ):
        truth = float(enumerated_divergence(pairs_of_laws(eta, parts, classes), order))
        found.append(two_label_curve(eta, parts, order) / truth)
        assert soft_majority_rdp(eta, parts, classes)(order) >= truth * (1 - 1e-9)
    assert min(found) < 0.97


@pytest.mark.parametrize("eta", [0.05, 0.3, 1.0, 2.5])
@pytest.mark.parametrize(("parts", "classes"), [(1, 2), (5, 2), (8, 3), (5, 4)])
def test_expected_accuracy(eta, parts, classes):
    """No probability of a label moves by more, over all neighbours."""
    moved = max(
        abs(mp.exp(p) - mp.exp(q))
        for one, other in pairs_of_laws(eta, parts, classes)
        for p, q in zip(one, other, strict=True)
    )
    assert moved <= expected_accuracy_sensitivity(eta) * (1 + 1e-12)


def test_expected_accuracy_is_reached():
    one, other = log_law((4, 3), 0.5), log_law((3, 4), 0.5)
    assert float(mp.exp(one[0]) - mp.exp(other[0])) == pytest.approx(math.tanh(0.25))


@settings(max_examples=150, deadline=None)
@given(st.floats(1e-9, 1e3), st.integers(1, 2000), st.integers(2, 2000), st.floats(1.0001, 1e12))
def test_always_a_number_between_its_bounds(eta, parts, classes, order):
    epsilon = soft_majority_epsilon(eta, parts, classes)
    assert eta * (1 - 1e-12) <= epsilon <= 2 * eta * (1 + 1e-12)
    found = soft_majority_rdp(eta, parts, classes)(order)
    assert 0 <= found <= min(epsilon, order * eta**2 / 2) * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 2), st.integers(1, 300), st.integers(2, 50))
def test_grows_with_order_and_ends_at_epsilon(eta, parts, classes):
    curve = soft_majority_rdp(eta, parts, classes)
    values = [curve(order) for order in (1.1, 1.5, 2, 4, 16, 256, 1e5, 1e12)]
    assert all(b >= a * (1 - 1e-9) for a, b in itertools.pairwise(values))
    assert values[-1] == pytest.approx(soft_majority_epsilon(eta, parts, classes), rel=1e-4)


def test_known_numbers():
    """At equal epsilon eta may grow by these factors over epsilon / 2 (ten classes)."""
    for parts, epsilon, factor in ((10, 0.1, 1.80), (50, 0.1, 1.21), (250, 0.1, 1.0)):
        assert soft_majority_epsilon(factor * epsilon / 2, parts, 10) == pytest.approx(
            epsilon, rel=0.01
        )
    assert soft_majority_epsilon(0.1, 1000, 10) == pytest.approx(0.2)
    assert soft_majority_epsilon(800.0, 50, 10) == pytest.approx(1600.0)


class TestCharge:
    def test_two_members(self):
        one, two = SoftVote(0.1, 50, 10), SoftVote(0.1, 50, 10, members_changed=2)
        assert two.epsilon == pytest.approx(2 * one.epsilon)
        assert two.rho == pytest.approx(4 * one.rho)
        for order in (1.1, 2.0, 10.0, 1e4):
            assert one.curve()(order) < two.curve()(order) <= order * two.rho
            assert two.curve()(order) <= two.epsilon

    @pytest.mark.parametrize("order", [1.5, 3.0, 20.0])
    def test_two_members_against_enumeration(self, order):
        """Two votes moved, wherever from and to."""
        eta, parts, classes = 0.4, 4, 3
        charge = SoftVote(eta, parts, classes, members_changed=2)
        laws = {v: log_law(v, eta) for v in vectors(parts, classes)}
        pairs = [
            (laws[v], laws[w])
            for v, w in itertools.product(laws, laws)
            if 0 < sum(abs(a - b) for a, b in zip(v, w, strict=True)) <= 4
        ]
        assert enumerated_epsilon(pairs) <= charge.epsilon
        assert enumerated_divergence(pairs, order) <= charge.curve()(order)

    def test_composition(self):
        charge = SoftVote(0.05, 50, 10, count=100)
        found = compose([charge], 1e-5)
        assert found.method == "Renyi"
        assert found.epsilon < compose([Concentrated(charge.rho, 100)], 1e-5).epsilon
        assert found.epsilon < compose([Pure(charge.epsilon, 100)], 1e-5).epsilon
        assert compose([charge]).epsilon == pytest.approx(100 * charge.epsilon)
        mixed = compose_mixed([charge, Pure(0.01)], 1e-5)
        assert mixed.epsilon <= compose([charge, Pure(0.01)], 1e-5).epsilon


@pytest.mark.parametrize(
    "call",
    [
        lambda: SoftVote(-0.1, 10, 3),
        lambda: SoftVote(0.1, 0, 3),
        lambda: SoftVote(0.1, 10, 1),
        lambda: SoftVote(0.1, 10, 3, -1),
        lambda: SoftVote(0.1, 10, 3, members_changed=3),
        lambda: soft_majority_epsilon(float("nan"), 10, 3),
        lambda: soft_majority_rdp(0.1, 10.5, 3),
        lambda: expected_accuracy_sensitivity(-1.0),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(InvalidArgumentError, match="Expected `"):
        call()
