"""What would wait for the device."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class HostReads(TorchDispatchMode):
    """Counts what would wait for the device: scalars read, and copies to the host's lists."""

    READS = (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default)

    def __init__(self, monkeypatch):
        super().__init__()
        self.count = 0
        for name in ("tolist", "numpy", "cpu"):
            monkeypatch.setattr(torch.Tensor, name, self.counted(getattr(torch.Tensor, name)))

    def counted(self, method):
        def read(tensor, *arguments, **options):
            self.count += 1
            return method(tensor, *arguments, **options)

        return read

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function in self.READS
        return function(*args, **(kwargs or {}))
