"""The door: raw values become answers. Rules are in ``mechanisms/``, rows in ``ledger/``."""

from torch_holdout.holdout.challenge_results import Challenge as Challenge
from torch_holdout.holdout.closing import Closing as Closing
from torch_holdout.holdout.door import ReusableHoldout as ReusableHoldout
from torch_holdout.holdout.door import _handle as _handle
from torch_holdout.holdout.multiplicative_weights import (
    MultiplicativeWeights as MultiplicativeWeights,
)
from torch_holdout.holdout.prices import Price as Price
from torch_holdout.holdout.prices import Prices as Prices
from torch_holdout.holdout.results import Answer as Answer
from torch_holdout.holdout.results import Status as Status
from torch_holdout.holdout.run import Run as Run
from torch_holdout.holdout.run_results import Evaluation as Evaluation
from torch_holdout.holdout.run_results import Outcome as Outcome
from torch_holdout.holdout.runs import named_run as named_run

for _public in (
    Answer,
    Challenge,
    Closing,
    Evaluation,
    MultiplicativeWeights,
    Outcome,
    Price,
    Prices,
    ReusableHoldout,
    Run,
    Status,
    _handle,
):
    _public.__module__ = __name__  # where pickles look for it
