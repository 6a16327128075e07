"""An example's value may depend on that example and the weights, not on its batch or on chance."""

from torch import nn
from torchmetrics import Metric

from torch_holdout.errors import WeightsChangedError


def require_eval(model: nn.Module) -> None:
    """Refuse a model that is training, or that normalises over the batch."""
    for name, module in model.named_modules():
        if _depends_on_batch_or_chance(module):
            raise WeightsChangedError(
                f"Expected every example's value to depend on that example and the weights only, "
                f"but {name or 'the model'!r} ({type(module).__name__}) is in training mode or "
                f"uses its batch. Call model.eval() before the pass; a BatchNorm needs running "
                f"statistics. Nothing was charged."
            )


def _depends_on_batch_or_chance(module: nn.Module) -> bool:
    """Whether it may; only torch's own layers are known to be the same in both modes."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.training or module.running_mean is None
    if not module.training or isinstance(module, Metric):
        return False
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return module.track_running_stats
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    chance = getattr(module, "dropout", 0.0)  # recurrent and attention layers
    drops = isinstance(chance, float) and chance > 0
    return drops or isinstance(module, nn.RReLU) or not type(module).__module__.startswith("torch.")
