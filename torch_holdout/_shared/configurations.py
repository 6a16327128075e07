"""Values out of OmegaConf's containers, which Hydra hands over in place of Python's own."""

import inspect
import sys
from dataclasses import is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """Return a value without OmegaConf's containers; any other value as it is.

    Hydra passes a mapping as a ``DictConfig`` and a sequence as a ``ListConfig``. An instance of a
    dataclass inside of them, or given to ``instantiate``, is taken apart into a ``DictConfig`` of
    its fields, which remembers the class: the instance is made again from those that are arguments.

    Example:
        >>> import torch_holdout as th
        >>> from omegaconf import OmegaConf
        >>> given = OmegaConf.create({"val_loss": th.BoundedMean(0.0, 5.0)})
        >>> given
        {'val_loss': {'low': 0.0, 'high': 5.0, 'mode': 'min', 'per_example': None}}
        >>> plain(given)
        {'val_loss': BoundedMean(low=0.0, high=5.0, mode='min')}
        >>> plain(OmegaConf.create(["lr"])), plain(("lr",))
        (['lr'], ('lr',))
    """
    omegaconf = sys.modules.get("omegaconf")  # which nobody has used if it is not loaded
    if omegaconf is None or not omegaconf.OmegaConf.is_config(value):
        return value
    if omegaconf.OmegaConf.is_list(value):
        return [plain(part) for part in value]
    parts = {key: plain(value[key]) for key in value}
    kind = omegaconf.OmegaConf.get_type(value)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return parts
    accepted = inspect.signature(kind).parameters
    return kind(**{name: part for name, part in parts.items() if name in accepted})
