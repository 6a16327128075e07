"""Questions about a tensor that are answered without reading it."""

import torch
from torch import Tensor


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has its values in ordinary memory: dense, not quantised, not fake."""
    return tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_meta)
