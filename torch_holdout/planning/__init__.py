"""Before the first question: what a budget will certify, and what a tolerance takes.

Theorems are in ``bounds/``; here they are inverted and put into words.
"""

from torch_holdout.planning.planner import (
    Plan,
    certificate,
    max_queries,
    plan,
    required_holdout_size,
)

__all__ = ["Plan", "certificate", "max_queries", "plan", "required_holdout_size"]
