"""``HoldoutGuard`` for ``lightning.pytorch``."""

from lightning.pytorch.callbacks import Callback

from torch_holdout.training.guard import HoldoutGuardHooks

__all__ = ["HoldoutGuard"]


class HoldoutGuard(HoldoutGuardHooks, Callback):
    """Guard the validation of a ``lightning.pytorch`` Trainer."""


HoldoutGuard.__doc__ = HoldoutGuardHooks.__init__.__doc__
