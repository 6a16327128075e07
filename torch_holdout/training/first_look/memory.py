"""The memory behind tensors: who shares it, whether it is still there, how a write is undone."""

import weakref
from typing import Any, final

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from torch_holdout.training.first_look.places import Place


@final
class Write:
    """A write into a tensor that is not marked; it can be undone while the memory is there."""

    def __init__(self, target: Tensor, place: Place, of_model: bool) -> None:
        self.place, self.of_model = place, of_model
        self.target = weakref.ref(target)
        self.storage = reference_to(target)
        self._kind = type(target)
        self._geometry = target.storage_offset(), target.shape, target.stride()
        self._before = target.detach().clone()

    def undo(self) -> None:
        """Put back class and content."""
        target = self.target()
        if target is not None:
            target.__class__ = self._kind
        if not self.storage.expired():
            memory = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
            there = torch.empty(0, dtype=self._before.dtype, device=self._before.device)
            there.set_(memory, *self._geometry).copy_(self._before)


def plainly(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a torch function past what subclasses of tensors add to it."""
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def reference_to(tensor: Tensor) -> Any:
    """Return a weak reference to a tensor's memory."""
    storage = plainly(Tensor.untyped_storage, (tensor,), {})
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def memory_of(tensor: Tensor) -> int:
    """Return the address of a tensor's memory object; 0 if it has none."""
    try:
        return int(plainly(Tensor.untyped_storage, (tensor,), {})._cdata)
    except RuntimeError:  # sparse
        return 0


def zero(reference: Any) -> None:
    """Empty memory that is still there."""
    torch.UntypedStorage._new_with_weak_ptr(reference.cdata).fill_(0)  # type: ignore[attr-defined]
