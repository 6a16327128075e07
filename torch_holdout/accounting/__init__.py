"""Charges to (epsilon, delta), for replacing one example unless a charge says otherwise.

``compose`` takes the smallest valid composition of charges fixed beforehand; the parts are here one
by one. What a holdout may cost (``epsilon_cap``) is kept apart from what has been charged so far.
Here are formulas only: nothing is charged here (that is ``ledger/``), nothing draws noise, and how
accurate an answer is belongs to ``bounds/``.
"""

from typing import Any

from torch_holdout._shared.moved import old_name
from torch_holdout.accounting.charges import (
    Charge,
    Concentrated,
    DiscreteLaplace,
    Pure,
    SampledGaussian,
    SoftVote,
)
from torch_holdout.accounting.compose import (
    Privacy,
    PrivacyLoss,
    compose,
    compose_advanced,
    compose_basic,
    compose_mixed,
    epsilon_cap,
    group_privacy,
)
from torch_holdout.accounting.filters import capacity, largest_parameter, queries_for
from torch_holdout.accounting.pure import compose_pure, delta_of_pure
from torch_holdout.accounting.rdp import epsilon_of_rho, rho_for, rho_of_gaussian
from torch_holdout.accounting.sampled_gaussian import sampled_gaussian_rdp
from torch_holdout.accounting.soft_majority import (
    expected_accuracy_sensitivity,
    soft_majority_epsilon,
    soft_majority_rdp,
)

__all__ = [
    "Charge",
    "Concentrated",
    "DiscreteLaplace",
    "Privacy",
    "PrivacyLoss",
    "Pure",
    "SampledGaussian",
    "SoftVote",
    "capacity",
    "compose",
    "compose_advanced",
    "compose_basic",
    "compose_mixed",
    "compose_pure",
    "delta_of_pure",
    "epsilon_cap",
    "epsilon_of_rho",
    "expected_accuracy_sensitivity",
    "group_privacy",
    "largest_parameter",
    "queries_for",
    "rho_for",
    "rho_of_gaussian",
    "sampled_gaussian_rdp",
    "soft_majority_epsilon",
    "soft_majority_rdp",
]

_HOMES = {
    "compose": "sampling_delta",
    "filters": "best_order capacity_in_picos charge_in_picos divergence",
    "rdp": "epsilon_of_rdp epsilon_of_rho_simple rdp_of_discrete_laplace rdp_of_pure rdp_of_rho "
    "rho_of_pure",
}
_MOVED = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    return old_name(__name__, name, _MOVED)
