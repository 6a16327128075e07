"""Fewer items for a drawing or a list."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

DRAWN = 600  # releases with their intervals, over all statistics of an account


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most ``most`` items, evenly spread, with the first and the last.

    Example:
        >>> thinned(range(100), 4)
        [0, 33, 66, 99]
    """
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    return [items[round(i * last / (most - 1))] for i in range(most)]
