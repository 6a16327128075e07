"""Charges to (epsilon, delta), always for replacing one example.

``compose`` takes the smallest valid composition of charges fixed beforehand; the parts are here one
by one. What a holdout may cost (``epsilon_cap``) is kept apart from what has been charged so far.
Here are formulas only: nothing is charged here (that is ``ledger/``), nothing draws noise, and how
accurate an answer is belongs to ``bounds/``.
"""

from torch_holdout.accounting.cap import epsilon_cap
from torch_holdout.accounting.charges import Charge, Concentrated, DiscreteLaplace, Pure, SoftVote
from torch_holdout.accounting.compose import Privacy, compose, sampling_delta
from torch_holdout.accounting.composition import compose_advanced, compose_basic, group_privacy
from torch_holdout.accounting.filters import (
    best_order,
    capacity,
    capacity_in_picos,
    charge_in_picos,
    divergence,
    largest_parameter,
    queries_for,
)
from torch_holdout.accounting.loss import PrivacyLoss
from torch_holdout.accounting.pld import compose_mixed
from torch_holdout.accounting.pure import compose_pure, delta_of_pure
from torch_holdout.accounting.rdp import (
    epsilon_of_rdp,
    rdp_of_discrete_laplace,
    rdp_of_pure,
    rdp_of_rho,
)
from torch_holdout.accounting.soft_majority import (
    expected_accuracy_sensitivity,
    soft_majority_epsilon,
    soft_majority_rdp,
)
from torch_holdout.accounting.zcdp import (
    epsilon_of_rho,
    epsilon_of_rho_simple,
    rho_for,
    rho_of_gaussian,
    rho_of_pure,
)

__all__ = [
    "Charge",
    "Concentrated",
    "DiscreteLaplace",
    "Privacy",
    "PrivacyLoss",
    "Pure",
    "SoftVote",
    "best_order",
    "capacity",
    "capacity_in_picos",
    "charge_in_picos",
    "compose",
    "compose_advanced",
    "compose_basic",
    "compose_mixed",
    "compose_pure",
    "delta_of_pure",
    "divergence",
    "epsilon_cap",
    "epsilon_of_rdp",
    "epsilon_of_rho",
    "epsilon_of_rho_simple",
    "expected_accuracy_sensitivity",
    "group_privacy",
    "largest_parameter",
    "queries_for",
    "rdp_of_discrete_laplace",
    "rdp_of_pure",
    "rdp_of_rho",
    "rho_for",
    "rho_of_gaussian",
    "rho_of_pure",
    "sampling_delta",
    "soft_majority_epsilon",
    "soft_majority_rdp",
]
