"""The door: the one room that turns a raw holdout value into an answer.

Rules are in ``mechanisms/``, rows in ``ledger/``; training loops around the door in ``training/``.
"""

from torch_holdout.holdout.door import ReusableHoldout, _handle
from torch_holdout.holdout.multiplicative_weights import MultiplicativeWeights
from torch_holdout.holdout.results import Answer, Status
from torch_holdout.holdout.runs import named_run

__all__ = ["Answer", "MultiplicativeWeights", "ReusableHoldout", "Status", "_handle", "named_run"]
