"""Charges to (epsilon, delta)."""

from torch_holdout.accounting.cap import epsilon_cap, sampling_delta
from torch_holdout.accounting.pure import compose_pure, delta_of_pure

__all__ = ["compose_pure", "delta_of_pure", "epsilon_cap", "sampling_delta"]
