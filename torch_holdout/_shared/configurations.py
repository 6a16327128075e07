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
        >>> given = OmegaConf.create({}, flags={"allow_objects": True})  # as Hydra does
        >>> given.val_loss = th.BoundedMean(0.0, 5.0)
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
    if not isinstance(kind, type) or not is_dataclass(kind):
        return parts
    accepted = inspect.signature(kind).parameters
    return kind(**{name: part for name, part in parts.items() if name in accepted})


def written(value: Any) -> Any:
    """Return the outermost container of OmegaConf's as Python's own; any other value as it is.

    What is missing or cannot be resolved here, as ``${hydra:...}`` outside of Hydra, is the text
    that was written.

    Example:
        >>> from omegaconf import OmegaConf
        >>> config = OmegaConf.create({"lr": 0.1, "same": "${lr}", "out": "${hydra:job.name}"})
        >>> written(config), written(OmegaConf.create([64, "???"]))
        ({'lr': 0.1, 'same': 0.1, 'out': '${hydra:job.name}'}, [64, '???'])
    """
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is None or not omegaconf.OmegaConf.is_config(value):
        return value
    text = omegaconf.OmegaConf.to_container(value, resolve=False)
    if not isinstance(text, dict | list):  # a container that is None, or missing itself
        return text
    if isinstance(text, list):
        return [_read(value, index, part) for index, part in enumerate(text)]
    return {key: _read(value, key, part) for key, part in text.items()}


def _read(config: Any, key: Any, text: Any) -> Any:
    try:
        return config[key]
    except sys.modules["omegaconf"].errors.OmegaConfBaseException:
        return text
