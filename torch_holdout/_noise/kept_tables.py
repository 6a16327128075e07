"""Tables of laws on the devices that draw from them; the last few are kept there."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_TABLES = 32  # a large Gaussian table has 7.4 MB, and there are eight of them on the host

_kept: dict[tuple[tuple[object, ...], torch.device], Tensor] = {}


def table_on(
    name: tuple[object, ...], numbers: npt.NDArray[np.int64], device: torch.device
) -> Tensor:
    """Return a table on a device; it is copied there once, while its name is among the last few.

    Example:
        >>> table_on(("example",), np.array([1, 2]), torch.device("cpu"))
        tensor([1, 2])
    """
    kept = _kept.get((name, device))
    if kept is not None:
        return kept
    table = torch.tensor(numbers).to(device)
    if type(table) is Tensor:  # not one of a mode that only follows shapes
        if len(_kept) >= _TABLES:
            _kept.clear()
        _kept[name, device] = table
    return table
