"""Formulas of papers that nothing here computes with: one function per statement, floats only.

Sample sizes, lectures, transfer theorems in other forms, costs of private prediction: kept to
compare with, to check printed tables and to teach. A formula that a certificate, a plan or a charge
needs belongs to ``bounds/`` itself; conventions are the same as there.
"""

# ruff: noqa: F403
from torch_holdout.bounds.published.counting import *
from torch_holdout.bounds.published.prediction import *
from torch_holdout.bounds.published.sample_sizes import *
from torch_holdout.bounds.published.thresholdout import *
from torch_holdout.bounds.published.transfer import *

# Every function and class that these modules define, and nothing that they import.
__all__ = sorted(
    name
    for name, value in globals().items()
    if not name.startswith("_") and getattr(value, "__module__", "").startswith(f"{__name__}.")
)
