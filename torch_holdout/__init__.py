"""torch_holdout: keep a validation set honest.

``import torch_holdout as th`` loads nothing heavy; each name is imported when it is first used.

The door is ``holdout.py``: the one file that turns a raw holdout value into an answer. To read the
code, begin with ``statistics.py`` (what is summed), then ``mechanisms/`` (which answer is given),
``ledger/`` (where it is charged), ``holdout.py`` (all three in one transaction) and ``_guard.py``
(Lightning's hooks around it). What answers are worth is in ``bounds/``, what they cost in
``accounting/``; private answers from sensitive records are another door, ``prediction/``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_holdout.blockwise import Blockwise as Blockwise
    from torch_holdout.bounds.certificate import Certificate as Certificate
    from torch_holdout.bounds.certificate import Interval as Interval
    from torch_holdout.data_fingerprint import fingerprint as fingerprint
    from torch_holdout.errors import BudgetExhaustedError as BudgetExhaustedError
    from torch_holdout.errors import HoldoutError as HoldoutError
    from torch_holdout.errors import HoldoutMismatchError as HoldoutMismatchError
    from torch_holdout.errors import HoldoutWarning as HoldoutWarning
    from torch_holdout.errors import InvalidArgumentError as InvalidArgumentError
    from torch_holdout.errors import IsolationError as IsolationError
    from torch_holdout.errors import LedgerError as LedgerError
    from torch_holdout.errors import PartialPassError as PartialPassError
    from torch_holdout.errors import SealedValueError as SealedValueError
    from torch_holdout.errors import UnguardedLogError as UnguardedLogError
    from torch_holdout.errors import WeightsChangedError as WeightsChangedError
    from torch_holdout.holdout import ReusableHoldout as ReusableHoldout
    from torch_holdout.mechanisms.effective_rounds import EffectiveRounds as EffectiveRounds
    from torch_holdout.mechanisms.gaussian import GaussianMechanism as GaussianMechanism
    from torch_holdout.mechanisms.ladder import Ladder as Ladder
    from torch_holdout.mechanisms.laplace import LaplaceMechanism as LaplaceMechanism
    from torch_holdout.mechanisms.sparse import SparseVector as SparseVector
    from torch_holdout.mechanisms.thresholdout import Thresholdout as Thresholdout
    from torch_holdout.metrics import ReusableHoldoutMetric as ReusableHoldoutMetric
    from torch_holdout.multiplicative_weights import (
        MultiplicativeWeights as MultiplicativeWeights,
    )
    from torch_holdout.planning import Plan as Plan
    from torch_holdout.planning import certificate as certificate
    from torch_holdout.planning import max_queries as max_queries
    from torch_holdout.planning import plan as plan
    from torch_holdout.planning import required_holdout_size as required_holdout_size
    from torch_holdout.results import Answer as Answer
    from torch_holdout.results import Status as Status
    from torch_holdout.runs import named_run as named_run
    from torch_holdout.statistics import BoundedMean as BoundedMean
    from torch_holdout.statistics import CrossEntropy as CrossEntropy
    from torch_holdout.statistics import ZeroOne as ZeroOne
    from torch_holdout.subsets import fixed_subset as fixed_subset

_HOME = {
    "Answer": "results",
    "Blockwise": "blockwise",
    "BoundedMean": "statistics",
    "BudgetExhaustedError": "errors",
    "Certificate": "bounds.certificate",
    "CrossEntropy": "statistics",
    "EffectiveRounds": "mechanisms.effective_rounds",
    "GaussianMechanism": "mechanisms.gaussian",
    "HoldoutError": "errors",
    "HoldoutMismatchError": "errors",
    "HoldoutWarning": "errors",
    "Interval": "bounds.certificate",
    "InvalidArgumentError": "errors",
    "IsolationError": "errors",
    "Ladder": "mechanisms.ladder",
    "LaplaceMechanism": "mechanisms.laplace",
    "LedgerError": "errors",
    "MultiplicativeWeights": "multiplicative_weights",
    "PartialPassError": "errors",
    "Plan": "planning",
    "ReusableHoldout": "holdout",
    "ReusableHoldoutMetric": "metrics",
    "SealedValueError": "errors",
    "SparseVector": "mechanisms.sparse",
    "Status": "results",
    "Thresholdout": "mechanisms.thresholdout",
    "UnguardedLogError": "errors",
    "WeightsChangedError": "errors",
    "ZeroOne": "statistics",
    "certificate": "planning",
    "fingerprint": "data_fingerprint",
    "fixed_subset": "subsets",
    "max_queries": "planning",
    "named_run": "runs",
    "plan": "planning",
    "required_holdout_size": "planning",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'torch_holdout' has no attribute {name!r}")
    value = getattr(import_module(f"torch_holdout.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
