"""Warnings of code that computes with private values, ignored in its own thread only."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final


@final
class _Private(threading.local):
    """Matches any warning of a thread that computes with private values.

    It stands among the filters where a compiled pattern does. Those who copy filters to other
    processes (joblib) find one that matches nothing.
    """

    depth = 0
    pattern, flags = "(?!)", 0

    def match(self, text: str) -> bool:
        """Answer Python's question whether the filter applies."""
        return self.depth > 0

    def __reduce__(self) -> str:
        return "_private"


_private = _Private()
_FILTER: Any = ("ignore", _private, Warning, None, 0)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore this thread's warnings, which may quote what was computed.

    ``warnings.catch_warnings`` changes the filters of all threads, and two that overlap leave them
    changed. Here one filter stays among them, and asks which thread it is.

    Example:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     with without_warnings():
        ...         warnings.warn("quotes 5.0")
        ...     warnings.warn("public")
        >>> [str(warning.message) for warning in caught]
        ['public']
    """
    _private.depth += 1
    try:
        _stand_first()
        yield
    finally:
        _private.depth -= 1


def _stand_first() -> None:
    # Someone may have put other filters before it, or all away.
    filters: Any = warnings.filters
    if not filters or filters[0] is not _FILTER:
        filters.insert(0, _FILTER)
        for place in [n for n, one in enumerate(filters) if n and one is _FILTER][::-1]:
            del filters[place]


_stand_first()
