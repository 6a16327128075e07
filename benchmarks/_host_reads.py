"""Counts what would wait for a device, on a machine that has none."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten


class HostReads(TorchDispatchMode):
    """Counts scalars read from tensors, and copies to the host's lists and arrays.

    Args:
        device: Tensors that stand for the device's. If there are any, only reads of what was
            computed from them count: reading the host's own tensors waits for nothing.
    """

    READS = (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default)
    METHODS = ("tolist", "numpy", "cpu")

    def __init__(self, device: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.count = 0
        self._device = {_memory(tensor) for tensor in device}
        self._all = not self._device
        self._methods = {name: getattr(Tensor, name) for name in self.METHODS}

    def __enter__(self) -> "HostReads":
        for name, method in self._methods.items():
            setattr(Tensor, name, self._counted(method))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for name, method in self._methods.items():
            setattr(Tensor, name, method)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = self._all or any(self._is_device(leaf) for leaf in tree_leaves((args, kwargs)))
        self.count += found and function in self.READS
        result = function(*args, **(kwargs or {}))
        if found and not self._all:
            made = (leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
            self._device.update(_memory(tensor) for tensor in made)
        return result

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def read(tensor: Tensor, *args: Any, **options: Any) -> Any:
            self.count += self._all or self._is_device(tensor)
            return method(tensor, *args, **options)

        return read

    def _is_device(self, value: object) -> bool:
        return isinstance(value, Tensor) and _memory(value) in self._device


def _memory(tensor: Tensor) -> StorageWeakRef:
    # A weak reference keeps the address from being used again, and the memory from being kept.
    return StorageWeakRef(tensor.untyped_storage())
