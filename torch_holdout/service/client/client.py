"""``th.remote``: a board in another process, asked over HTTP."""

from collections.abc import Sequence
from typing import Any, final

from torch_holdout.service.client.answers import RemoteAnswer
from torch_holdout.service.client.holdout import RemoteHoldout


def remote(url: str, token: str | None = None, *, wait: float = 300.0) -> "RemoteBoard":
    """Return a board by its address; nothing is sent before it is used."""
    raise NotImplementedError


@final
class RemoteBoard:
    """A board in another process."""

    def submit(self, predictions: Any, *, final: bool = False) -> RemoteAnswer:
        """Submit predictions; the same content is the same answer, free."""
        raise NotImplementedError

    def finalists(self, submissions: Sequence[str]) -> list[str]:
        """Name the team's finalists, in place of those named before."""
        raise NotImplementedError

    def status(self) -> Any:
        """Return the board's public facts and this token's quota."""
        raise NotImplementedError

    def leaderboard(self) -> dict[str, Any]:
        """Return the leaderboard's JSON object."""
        raise NotImplementedError

    def holdout(self) -> RemoteHoldout:
        """Return the board for ``HoldoutGuard`` and ``ReusableHoldoutMetric``."""
        raise NotImplementedError
