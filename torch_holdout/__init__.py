"""torch_holdout: keep a validation set honest.

``import torch_holdout as th`` loads nothing heavy; each name is imported when it is first used.

The door is ``holdout/door.py``: the one file that turns a raw holdout value into an answer. To read
the code, begin with ``statistics/`` (what may be asked), then ``mechanisms/`` (which answer is
given), ``ledger/`` (where it is charged), ``holdout/`` (all three in one transaction) and
``training/`` (Lightning's hooks around it). What answers are worth is in ``bounds/``, what they
cost in ``accounting/``; private answers from sensitive records have their own door,
``prediction/predictor.py``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch_holdout._shared.moved import install_old_modules, old_module

if TYPE_CHECKING:
    from torch_holdout._fingerprints.data import Overlap as Overlap
    from torch_holdout._fingerprints.data import fingerprint as fingerprint
    from torch_holdout._fingerprints.data import overlap as overlap
    from torch_holdout._fingerprints.objects import digest as digest
    from torch_holdout.bounds.certificate import Certificate as Certificate
    from torch_holdout.bounds.certificate import Interval as Interval
    from torch_holdout.errors import BoardClosedError as BoardClosedError
    from torch_holdout.errors import BoardRefusedError as BoardRefusedError
    from torch_holdout.errors import BoardUnreachableError as BoardUnreachableError
    from torch_holdout.errors import BudgetExhaustedError as BudgetExhaustedError
    from torch_holdout.errors import HoldoutClosedError as HoldoutClosedError
    from torch_holdout.errors import HoldoutError as HoldoutError
    from torch_holdout.errors import HoldoutMismatchError as HoldoutMismatchError
    from torch_holdout.errors import HoldoutWarning as HoldoutWarning
    from torch_holdout.errors import InvalidArgumentError as InvalidArgumentError
    from torch_holdout.errors import IsolationError as IsolationError
    from torch_holdout.errors import LedgerError as LedgerError
    from torch_holdout.errors import PartialPassError as PartialPassError
    from torch_holdout.errors import QuotaExhaustedError as QuotaExhaustedError
    from torch_holdout.errors import SealedValueError as SealedValueError
    from torch_holdout.errors import UnguardedLogError as UnguardedLogError
    from torch_holdout.errors import WeightsChangedError as WeightsChangedError
    from torch_holdout.holdout import Answer as Answer
    from torch_holdout.holdout import Challenge as Challenge
    from torch_holdout.holdout import Closing as Closing
    from torch_holdout.holdout import MultiplicativeWeights as MultiplicativeWeights
    from torch_holdout.holdout import Outcome as Outcome
    from torch_holdout.holdout import Price as Price
    from torch_holdout.holdout import Prices as Prices
    from torch_holdout.holdout import ReusableHoldout as ReusableHoldout
    from torch_holdout.holdout import Run as Run
    from torch_holdout.holdout import Status as Status
    from torch_holdout.holdout import named_run as named_run
    from torch_holdout.mechanisms import EffectiveRounds as EffectiveRounds
    from torch_holdout.mechanisms import GaussianMechanism as GaussianMechanism
    from torch_holdout.mechanisms import Ladder as Ladder
    from torch_holdout.mechanisms import LaplaceMechanism as LaplaceMechanism
    from torch_holdout.mechanisms import Patience as Patience
    from torch_holdout.mechanisms import Sealed as Sealed
    from torch_holdout.mechanisms import SparseVector as SparseVector
    from torch_holdout.mechanisms import Thresholdout as Thresholdout
    from torch_holdout.planning import Plan as Plan
    from torch_holdout.planning import certificate as certificate
    from torch_holdout.planning import max_queries as max_queries
    from torch_holdout.planning import plan as plan
    from torch_holdout.planning import required_holdout_size as required_holdout_size
    from torch_holdout.service.client import remote as remote
    from torch_holdout.statistics import Blockwise as Blockwise
    from torch_holdout.statistics import BoundedMean as BoundedMean
    from torch_holdout.statistics import CrossEntropy as CrossEntropy
    from torch_holdout.statistics import GroupedMean as GroupedMean
    from torch_holdout.statistics import LoggedMean as LoggedMean
    from torch_holdout.statistics import Ratio as Ratio
    from torch_holdout.statistics import ZeroOne as ZeroOne
    from torch_holdout.training import ReusableHoldoutMetric as ReusableHoldoutMetric
    from torch_holdout.training import fixed_subset as fixed_subset
    from torch_holdout.training import split as split

_ROOMS = {
    "_fingerprints.data": "Overlap fingerprint overlap",
    "_fingerprints.objects": "digest",
    "bounds.certificate": "Certificate Interval",
    "errors": (
        "BoardClosedError BoardRefusedError BoardUnreachableError BudgetExhaustedError "
        "HoldoutClosedError HoldoutError HoldoutMismatchError HoldoutWarning InvalidArgumentError "
        "IsolationError LedgerError PartialPassError QuotaExhaustedError SealedValueError "
        "UnguardedLogError WeightsChangedError"
    ),
    "holdout": (
        "Answer Challenge Closing MultiplicativeWeights Outcome Price Prices ReusableHoldout Run "
        "Status named_run"
    ),
    "mechanisms": (
        "EffectiveRounds GaussianMechanism Ladder LaplaceMechanism Patience Sealed SparseVector "
        "Thresholdout"
    ),
    "planning": "Plan certificate max_queries plan required_holdout_size",
    "service.client": "remote",
    "statistics": "Blockwise BoundedMean CrossEntropy GroupedMean LoggedMean Ratio ZeroOne",
    "training": "ReusableHoldoutMetric fixed_subset split",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        return old_module(name)
    value = getattr(import_module(f"torch_holdout.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


install_old_modules()
