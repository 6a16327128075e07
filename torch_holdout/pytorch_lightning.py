"""``HoldoutGuard`` for ``pytorch_lightning``."""

from pytorch_lightning.callbacks import Callback

from torch_holdout.training.guard import HoldoutGuardHooks

__all__ = ["HoldoutGuard"]


class HoldoutGuard(HoldoutGuardHooks, Callback):
    """Guard the validation of a ``pytorch_lightning`` Trainer."""


HoldoutGuard.__doc__ = HoldoutGuardHooks.__init__.__doc__
