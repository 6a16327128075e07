"""What guards the machine: requests a minute for each token, and bytes that are being read."""

import contextlib
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import final

from torch_holdout.service.server.problems import Problem, RefusedError

_WINDOW = 60.0  # seconds
_MOST_TOKENS = 10_000  # windows that are kept at once; the one that asked longest ago goes first


@final
class RateWindow:
    """Count requests of the last minute for each token; refuse above a number.

    It lives in one process: several workers allow several times as many. It guards the machine;
    what a team may learn is guarded in the ledger's transaction.

    Example:
        >>> window = RateWindow(2, clock=lambda: 0.0)
        >>> window.enter("aaaa"), window.enter("aaaa"), window.enter("bbbb")
        (None, None, None)
        >>> window.enter("aaaa")
        Traceback (most recent call last):
            ...
        torch_holdout.service.server.problems.RefusedError: Expected at most 2 requests a minute
        with one token. Wait as long as Retry-After says.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def enter(self, token: str) -> None:
        """Count a request; raise ``RefusedError`` with a time to wait if there were too many."""
        now = self._clock()
        times = self._times.setdefault(token, deque())
        self._times.move_to_end(token)
        while len(self._times) > _MOST_TOKENS:
            self._times.popitem(last=False)
        while times and times[0] <= now - _WINDOW:
            times.popleft()
        if len(times) >= self._most:
            raise RefusedError(
                Problem.RATE,
                f"Expected at most {self._most} requests a minute with one token. Wait as long as "
                f"Retry-After says.",
                retry_after=math.ceil(times[0] + _WINDOW - now),
            )
        times.append(now)


@final
class ReadingRoom:
    """Bound the bytes of bodies that are read at once, in all and for each token.

    A body's length is known before it is read, so memory is bounded by ``most`` for all senders.

    Example:
        >>> room = ReadingRoom(100)
        >>> with room.reading("aaaa", 50), room.reading("bbbb", 50):
        ...     room.taken
        100
        >>> room.taken
        0
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_token: dict[str, int] = {}
        self.taken = 0

    @contextlib.contextmanager
    def reading(self, token: str, size: int) -> Iterator[None]:
        """Reserve a body's bytes while it is read and answered; refuse where none are left."""
        own = self._of_token.get(token, 0)
        if own + size > max(size, self._most // 2) or self.taken + size > self._most:
            raise RefusedError(
                Problem.RATE,
                "Expected fewer uploads at the same time. Send this one again a little later.",
                retry_after=1,
            )
        self._of_token[token] = own + size
        self.taken += size
        try:
            yield
        finally:
            self.taken -= size
            self._of_token[token] -= size
            if not self._of_token[token]:
                del self._of_token[token]
