"""Orders that nobody can know: from the operating system's entropy, never from a seed."""

import hashlib
from typing import Any

import numpy as np

from torch_holdout._noise.streams import fresh_secret


def secret_order(size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the numbers below ``size`` in an order that depends on 256 fresh bits.

    Example:
        >>> sorted(secret_order(4).tolist())
        [0, 1, 2, 3]
    """
    stream = hashlib.shake_256(fresh_secret(32) + b"order of rows").digest(8 * size)
    return np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")
