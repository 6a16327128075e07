"""Between the event loop and the board: threads, limits, rendered pages, events, a heartbeat."""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar, final

from anyio import CapacityLimiter, to_thread

from torch_holdout.errors import LedgerError
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.edge import ERRORS, place_of
from torch_holdout.service.server.limits import RateWindow, ReadingRoom
from torch_holdout.service.server.metrics import Counters
from torch_holdout.service.server.rendered import RenderedViews
from torch_holdout.service.server.teams import Event
from torch_holdout.service.server.tokens import Caller

Result = TypeVar("Result")

EVALUATING, READING = 2, 4  # threads
_MOST_READING = 1 << 29  # bytes of bodies at once, unless four uploads need more
_BEAT_SECONDS, _LOOK_EVERY = 0.5, 10
_MOST_EVENTS = 10_000  # kept until they are written; the oldest go first
_AT_ONCE = 100  # written in a transaction


@final
class Desk:
    """One worker's access to its board.

    The board blocks, so it is called in threads: few for uploads, which bounds memory, and others
    for what is only read, which must not wait behind uploads. A call is never abandoned: what was
    begun is committed, whether or not the client is still there.

    Args:
        board: The board.
        counters: Where requests are counted.
        parent: The process that must stop this one; without it this one stops itself. None: the
            process was started by the one that will stop it.
    """

    def __init__(self, board: Board, counters: Counters, parent: int | None = None) -> None:
        self.board = board
        self._parent = parent
        self.counters = counters
        self.rendered = RenderedViews()
        self.window = RateWindow(board.config.server.requests_per_minute)
        self.room = ReadingRoom(max(_MOST_READING, 4 * board.layout.largest))
        self._uploads = CapacityLimiter(EVALUATING)
        self._reads = CapacityLimiter(READING)
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)

    async def read(self, function: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Call the board for what changes no answer."""
        return await to_thread.run_sync(partial(function, *args, **named), limiter=self._reads)

    async def evaluate(self, function: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Call the board for an upload."""
        began = time.perf_counter()
        try:
            work = partial(function, *args, **named)
            return await to_thread.run_sync(work, limiter=self._uploads)
        finally:
            self.counters.add("answers", 1)
            microseconds = int((time.perf_counter() - began) * 1e6)
            self.counters.add("answer_microseconds", microseconds)

    async def admit(self, token: str | None) -> Caller:
        """Return who a token belongs to, read anew at every request; count the request."""
        caller = await self.read(self.board.caller, token)
        if caller.token is not None:
            self.window.enter(caller.token)
        return caller

    def note(
        self, action: str, status: int, caller: Caller, size: int = 0, position: int | None = None
    ) -> None:
        """Keep an event until the next heartbeat writes it."""
        self._events.append(Event(action, status, caller, size, position))

    @contextlib.asynccontextmanager
    async def running(self, _app: object) -> AsyncIterator[None]:
        """Run what a worker does apart from requests; at the end write the last events."""
        beat = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beat
            with _logged():
                await self.read(self._write_events)
            self.board.close_connections()

    async def _beat(self) -> None:
        for beat in itertools.count():
            with _logged():
                await self.read(self._write_events)
                if beat % _LOOK_EVERY == 0:
                    await self.read(self._look)
            if self._parent not in (None, os.getppid()):
                signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(_BEAT_SECONDS)

    def _write_events(self) -> None:
        while self._events:
            due = [self._events.popleft() for _ in range(min(len(self._events), _AT_ONCE))]
            try:
                self.board.record_events(due)
            except LedgerError:
                self._events.extendleft(reversed(due))  # the next heartbeat tries again
                raise

    def _look(self) -> None:
        """Reach the ledger, and keep what it says about the budget."""
        budget = self.board.view().budget
        for gauge, name in (
            *(("budget", "releases"), ("released", "released"), ("planned", "submissions")),
            ("submitted", "submitted"),
        ):
            self.counters.put(gauge, int(budget[name] or 0))
        self.counters.put("millinats", int(1000 * budget["nats"]))
        self.counters.put("heartbeat", int(time.time()))


@contextlib.contextmanager
def _logged() -> Any:
    """Log an error of the heartbeat by its place; the next one tries again."""
    try:
        yield
    except Exception as error:
        ERRORS.error("%s", place_of(error))
