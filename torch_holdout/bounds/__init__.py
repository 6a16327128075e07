"""One function per theorem about how far answers are from the population; floats only, no torch.

Means are of values in [0, 1] over independent units. Arguments outside a theorem's range raise
``ValueError`` with the range; where a theorem has nothing to say its result is infinite (or a
probability of 1). A tolerance of 1 or more is vacuous. Nothing here reads data or a ledger; what
answers cost in privacy belongs to ``accounting/``.
Formulas that nothing here computes with are in ``bounds/published``.
"""

from typing import Any

from torch_holdout._shared.moved import old_name
from torch_holdout.bounds import published as published
from torch_holdout.bounds.brackets import (
    any_sequences,
    bracket_anytime,
    bracket_fixed,
    bracket_planned,
    falling_sequences,
    hoeffding_tolerance,
    kl_answer_interval,
    monotone_sequences,
)
from torch_holdout.bounds.certificate import Certificate, certify_transcript
from torch_holdout.bounds.channels import gaussian_tail, laplace_tail
from torch_holdout.bounds.regulariser import convex_regulariser
from torch_holdout.bounds.single_query import binary_kl, hoeffding, kl_interval
from torch_holdout.bounds.transfer import (
    accuracy_transfer,
    information_mse,
    information_of_pure,
    information_of_pure_iid,
    information_tolerance,
    monitor_tolerance,
    pure_tolerance,
)

__all__ = [
    "Certificate",
    "accuracy_transfer",
    "any_sequences",
    "binary_kl",
    "bracket_anytime",
    "bracket_fixed",
    "bracket_planned",
    "certify_transcript",
    "convex_regulariser",
    "falling_sequences",
    "gaussian_tail",
    "hoeffding",
    "hoeffding_tolerance",
    "information_mse",
    "information_of_pure",
    "information_of_pure_iid",
    "information_tolerance",
    "kl_answer_interval",
    "kl_interval",
    "laplace_tail",
    "monitor_tolerance",
    "monotone_sequences",
    "pure_tolerance",
]


def __getattr__(name: str) -> Any:
    return old_name(__name__, name, dict.fromkeys(published.__all__, published.__name__))
