"""Public formulas with numbers of other kinds, at extremes, and with values of other types."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch_holdout import accounting, bounds
from torch_holdout._shared.checks import require_between, require_instance, require_whole
from torch_holdout.errors import InvalidArgumentError


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, Fraction])
def test_a_number_of_another_kind_counts_as_pythons_own(kind):
    value = kind(0.125)
    assert bounds.hoeffding(1000, value) == bounds.hoeffding(1000, 0.125)
    assert accounting.epsilon_of_rho(value, 1e-6) == accounting.epsilon_of_rho(0.125, 1e-6)
    assert type(accounting.rho_of_gaussian(value, value)) is float


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.published.smooth_noise_cost(1e300, 1e-6, 1e-300),
        lambda: bounds.published.agnostic_parts(0.1, 5e-324),
        lambda: bounds.published.soft_majority_parts(0.5, 5e-324),
        lambda: bounds.convex_regulariser(
            lipschitz=1.0, loss_lipschitz=2.0, radius=1e-300, units=10**9, epsilon=1e-300
        ),
        lambda: accounting.rho_of_gaussian(1e-150, 1e10),
    ],
)
def test_what_leaves_double_precision_is_refused_in_a_sentence(call):
    with pytest.raises(InvalidArgumentError, match="double precision"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.binary_kl(0.5, "x"),
        lambda: bounds.laplace_tail(None, 0.05, two_sided=True),
        lambda: bounds.laplace_tail(1.0, 0.05, two_sided=np.array([1, 2])),
        lambda: bounds.bracket_fixed(queries=5, budget=2, sequences=3, failure=0.05),
        lambda: bounds.certify_transcript(None, {}, 0.05),
        lambda: bounds.published.agnostic_size(0.1, 0.05, 1.0, lambda error, failure: None),
        lambda: accounting.compose([1.0]),
        lambda: accounting.compose(5),
        lambda: accounting.compose_basic([(0.1, 0.2, 0.3)]),
        lambda: accounting.epsilon_cap([], 3),
        lambda: accounting.capacity(1.0, 1e-6, torch.ones(2)),
        lambda: accounting.largest_parameter(lambda value: value, 10, 1.0, 1e-6),
        lambda: accounting.delta_of_pure(0.1, 2**63, 1.0),
    ],
)
def test_what_is_no_number_is_refused(call):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        call()


def test_the_shown_argument_is_short_and_holds_no_data():
    secret = torch.tensor([0.734219])
    for value in (secret, secret.numpy(), [[]], "x" * 10_000, Fraction(10**5000, 7)):
        with pytest.raises(InvalidArgumentError) as caught:
            require_whole("size", value, 1, 2)
        assert "0.73" not in str(caught.value)
        assert len(str(caught.value)) < 150


def test_arguments_that_cannot_be_printed_are_named_by_type():
    class Silent:
        def __repr__(self):
            raise OSError("no words")

    with pytest.raises(InvalidArgumentError, match="but got a Silent"):
        require_between("failure", Silent(), 0, 1)


def test_one_of_several_types_is_named():
    with pytest.raises(InvalidArgumentError, match="of type int or str, but got float"):
        require_instance("key", 0.5, int | str)
