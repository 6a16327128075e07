"""Private prediction: members on disjoint parts of sensitive records, one answer per query."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_holdout.prediction.isolation import Isolation as Isolation
    from torch_holdout.prediction.neighbours import Neighbours as Neighbours
    from torch_holdout.prediction.partition import Partition as Partition
    from torch_holdout.prediction.pytorch_lightning import (
        MemberParallelStrategy as MemberParallelStrategy,
    )
    from torch_holdout.prediction.pytorch_lightning import (
        PartitionedDataModule as PartitionedDataModule,
    )
    from torch_holdout.prediction.pytorch_lightning import (
        PartitionedEnsemble as PartitionedEnsemble,
    )

_BOUND = "bound to the Lightning package that is installed"
_HOME = {
    "Isolation": "isolation",
    "MemberParallelStrategy": _BOUND,
    "Neighbours": "neighbours",
    "Partition": "partition",
    "PartitionedDataModule": _BOUND,
    "PartitionedEnsemble": _BOUND,
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'torch_holdout.prediction' has no attribute {name!r}")
    home = _HOME[name]
    if home == _BOUND:
        home = "pytorch_lightning" if find_spec("lightning") is None else "lightning"
    value = getattr(import_module(f"torch_holdout.prediction.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
