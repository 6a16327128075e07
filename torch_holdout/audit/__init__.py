"""The library against itself: claimed privacy against measured, for ours and for broken twins.

Nothing here is needed to answer; it only measures what answers give away.
"""

from torch_holdout.audit.evidence import Row, epsilon_lower_bound
from torch_holdout.audit.holdouts import audit, budget_rows, exact_rows, sampled_rows
from torch_holdout.audit.predictions import prediction_rows

__all__ = [
    "Row",
    "audit",
    "budget_rows",
    "epsilon_lower_bound",
    "exact_rows",
    "prediction_rows",
    "sampled_rows",
]
