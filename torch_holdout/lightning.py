"""``HoldoutGuard`` for ``lightning.pytorch``."""

from lightning.pytorch.callbacks import Callback

from torch_holdout.training.guard import HoldoutGuardHooks

__all__ = ["HoldoutGuard"]


class HoldoutGuard(HoldoutGuardHooks, Callback):
    """Route validation through a holdout; arguments and behaviour are ``HoldoutGuardHooks``'.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=500, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.01), budget=20)
        >>> guard = HoldoutGuard(holdout, public=("lr",))  # for L.Trainer(callbacks=[guard, ...])
        >>> guard.on_exhausted, isinstance(guard, Callback)
        ('stop', True)
    """
