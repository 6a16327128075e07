"""A metric as it was made, for one block after the other.

What a metric remembers of one block must not reach another. A copy remembers nothing, but copying
takes as long as computing; a metric of torchmetrics is put back by its own ``reset`` where that is
known to be all: its states, and plain settings that are still what they were.
"""

from typing import Any, final

import torch

_PLAIN = (int, float, str, bool, type(None))
# What the base class keeps, and resets itself. A name that is not here means a copy.
_BOOKKEEPING = {
    "_TORCH_GREATER_EQUAL_2_1", "_backward_hooks", "_backward_pre_hooks", "_buffers",
    "_cache", "_computed", "_defaults", "_device", "_dtype", "_dtype_convert", "_enable_grad",
    "_forward_cache", "_forward_hooks", "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_is_full_backward_hook", "_is_synced", "_load_state_dict_post_hooks",
    "_load_state_dict_pre_hooks", "_modules", "_non_persistent_buffers_set", "_parameters",
    "_persistent", "_reductions", "_should_unsync", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_to_sync", "_update_count", "_update_signature", "compute",
    "compute_on_cpu", "compute_with_cache", "dist_sync_fn", "dist_sync_on_step",
    "distributed_available_fn", "process_group", "sync_on_compute", "training", "update",
}  # fmt: skip


@final
class FreshMetrics:
    """Metrics as one was made: each is a copy, or the last one after its ``reset``.

    Example:
        >>> from torchmetrics import SumMetric
        >>> fresh = FreshMetrics(SumMetric(), torch.device("cpu"))
        >>> metric = fresh.take()
        >>> metric.update(3.0)
        >>> fresh.put_back(metric)
        >>> again = fresh.take()
        >>> again is metric, float(again.sum_value)
        (True, 0.0)
    """

    def __init__(self, metric: Any, device: torch.device) -> None:
        self._made = metric
        self._device = device
        self._spare: Any = None

    def take(self) -> Any:
        """Return a metric that has seen nothing; of one that is not put back, nothing is used."""
        metric, self._spare = self._spare, None
        if metric is None:
            metric = self._made.clone().to(self._device)
            for part in metric.modules():  # the rows of all ranks are here already
                part.distributed_available_fn = lambda: False
        metric.reset()
        return metric

    def put_back(self, metric: Any) -> None:
        """Keep a metric for the next block if its reset forgets this one."""
        if reset_forgets(metric, self._made):
            self._spare = metric


def reset_forgets(used: Any, made: Any) -> bool:
    """Whether nothing of what a metric has seen is left after its reset, and that is known.

    Example:
        >>> from torchmetrics import MinMaxMetric, SumMetric
        >>> reset_forgets(SumMetric(), SumMetric())
        True
        >>> parts = (MinMaxMetric(SumMetric()) for _ in range(2))
        >>> reset_forgets(*parts)
        False
    """
    own, before = vars(used), vars(made)
    plain = type(used).__module__.split(".")[0] == "torchmetrics" and type(used) is type(made)
    alone = plain and not (own["_modules"] or own["_buffers"] or own["_parameters"])
    if not alone or set(own) != set(before):
        return False
    settings = [name for name in own if name not in _BOOKKEEPING and name not in own["_defaults"]]
    return all(
        type(own[name]) is type(before[name])
        and isinstance(own[name], _PLAIN)
        and own[name] == before[name]
        for name in settings
    )
