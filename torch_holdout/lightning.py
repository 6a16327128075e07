"""``HoldoutGuard`` for ``lightning.pytorch``."""

from lightning.pytorch.callbacks import Callback

from torch_holdout._guard import HoldoutGuardHooks

__all__ = ["HoldoutGuard"]


class HoldoutGuard(HoldoutGuardHooks, Callback):
    """Route validation through a holdout; arguments and behaviour are ``HoldoutGuardHooks``'."""
