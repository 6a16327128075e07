"""What a query is named by: text, a weights fingerprint, or the module itself."""

import sys

from torch import nn

from torch_holdout._fingerprints.weights import (
    WeightsFingerprint,
    plain_modules,
    weights_fingerprint,
)
from torch_holdout.errors import InvalidArgumentError, WeightsChangedError

Named = str | WeightsFingerprint | nn.Module


def require_query(query: Named) -> None:
    """Raise unless a query can be named; a module must be in eval mode.

    Example:
        >>> require_query(nn.Dropout())
        Traceback (most recent call last):
            ...
        torch_holdout.errors.WeightsChangedError: Expected every example's value to depend on that
        example and the weights only, ...
    """
    if isinstance(query, nn.Module):
        require_eval(query)
    elif not isinstance(query, str | WeightsFingerprint):
        raise InvalidArgumentError(
            f"Expected `query` to be text, a weights fingerprint or a torch module, but got "
            f"{type(query).__name__}. Name another model by th.digest(model). Nothing was charged."
        )


def named_query(query: Named) -> str | WeightsFingerprint:
    """Return a module's fingerprint; text and fingerprints as they are.

    If a module's weights are spread over ranks, all of them must call this.
    """
    return weights_fingerprint(query) if isinstance(query, nn.Module) else query


def require_eval(model: nn.Module) -> None:
    """Raise unless a model's value for an example depends on that example and the weights only."""
    for name, module in plain_modules(model):
        if _depends_on_batch_or_chance(module):
            raise WeightsChangedError(
                f"Expected every example's value to depend on that example and the weights only, "
                f"but {name or 'the model'!r} ({type(module).__name__}) is in training mode or "
                f"uses its batch. Call model.eval() before the pass; a BatchNorm needs running "
                f"statistics. Nothing was charged."
            )


def _depends_on_batch_or_chance(module: nn.Module) -> bool:
    # Only torch's own layers are known to be the same in both modes.
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.training or module.running_mean is None
    if not module.training or _is_metric(module):
        return False
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return module.track_running_stats
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    chance = getattr(module, "dropout", 0.0)  # recurrent and attention layers
    drops = isinstance(chance, float) and chance > 0
    return drops or isinstance(module, nn.RReLU) or not type(module).__module__.startswith("torch.")


def _is_metric(module: nn.Module) -> bool:
    torchmetrics = sys.modules.get("torchmetrics")  # whoever has a metric has imported it
    return torchmetrics is not None and isinstance(module, torchmetrics.Metric)
