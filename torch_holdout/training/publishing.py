"""A number on its way to Lightning's loggers, callbacks and progress bars."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class Published(Metric):
    """A number that every rank has already; Lightning takes it as it is.

    A tensor would be made a float, so that a budget of 19 reads 19.00, and under DDP Lightning
    would advise to average it over ranks. A metric's own value is left alone.

    Example:
        >>> Published(19).compute(), Published(0.25).compute()
        (tensor(19), tensor(0.2500, dtype=torch.float64))
    """

    full_state_update = False

    def __init__(self, value: float) -> None:
        super().__init__(sync_on_compute=False)
        whole = isinstance(value, int)  # flags are 0 and 1
        self._value = torch.tensor(value, dtype=torch.int64 if whole else torch.float64)
        self.update()

    def update(self, *_: Any) -> None:
        """Count as updated; there is nothing to add."""

    def compute(self) -> Tensor:
        """Return the number."""
        return self._value
