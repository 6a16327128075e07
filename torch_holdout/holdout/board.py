"""A board: many analysts, one holdout, one total of what they are told."""

from collections.abc import Callable, Mapping
from typing import Any, final

from torch_holdout.holdout.board_results import (
    Analyst,
    BoardAnswer,
    BoardResults,
    Standing,
)
from torch_holdout.holdout.board_results import Claim as Claim
from torch_holdout.holdout.board_results import Finalist as Finalist
from torch_holdout.holdout.board_results import Quota as Quota
from torch_holdout.holdout.board_results import Result as Result
from torch_holdout.mechanisms.board import Feedback as Feedback
from torch_holdout.statistics import Statistic

Values = Mapping[str, Any]


@final
class BoardHoldout:
    """A holdout that many analysts ask, each with a quota, all on one account.

    Args:
        url: Where the ledger is.
        name: The board's name in that ledger.
        size: Number of rows that give feedback; 0 for a sealed board with a vault.
        statistics: The statistics, by name; the first one decides.
        feedback: What a submission is told.
        budget: Releases that may be made in all (ladder and record); quotas are reserved from it.
        submissions: How many submissions are planned, of all analysts; more cost a little more.
        vault_size: Number of rows that are read at closing only.
        failure: The probability that any interval is wrong.
        registered: More that must never change: text is shown when it differs, bytes are stored as
            a digest under the ledger's secret and never shown (fingerprints of labels).
        resolution: Integer levels of one row's value; None: 65536.
        grid: Number of answer intervals; None: the power of two from ``4 * sqrt(units)`` up.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        size: int,
        statistics: Mapping[str, Statistic],
        feedback: Feedback,
        budget: int,
        submissions: int,
        vault_size: int = 0,
        failure: float = 0.05,
        registered: Mapping[str, str | bytes] | None = None,
        resolution: int | None = None,
        grid: int | None = None,
    ) -> None:
        raise NotImplementedError

    def attach(self) -> None:
        """Create the account, or check that it has these parameters (``HoldoutMismatchError``)."""
        raise NotImplementedError

    def add_analyst(self, name: str, *, submissions: int, releases: int) -> Analyst:
        """Add an analyst; its releases are reserved from the budget."""
        raise NotImplementedError

    def analysts(self) -> list[Analyst]:
        """Return the analysts, in the order they were added."""
        raise NotImplementedError

    def submit(
        self,
        analyst: str,
        values: Values,
        *,
        query: str,
        incumbent: Callable[[str], Values | None] | None = None,
    ) -> BoardAnswer:
        """Answer a submission; committed before it returns. One asked before repeats, free.

        Args:
            analyst: Who asks.
            values: By statistic what its ``update`` takes. Nothing is read on a sealed board: {}.
            query: The content's SHA-256, 64 hexadecimal digits.
            incumbent: For a gate: returns the same values of the analyst's incumbent by its query,
                from the upload that was kept; None if that is lost.

        Raises:
            BoardClosedError: Nothing is answered any more.
            QuotaExhaustedError: Nothing is left to the analyst, or to the board (``.scope``).
        """
        raise NotImplementedError

    def recall(self, analyst: str, query: str) -> BoardAnswer | None:
        """Return the earlier answer to a submission as a repeat; None, and no charge, without."""
        raise NotImplementedError

    def answers(self, analyst: str | None = None) -> list[BoardAnswer]:
        """Return the answers so far, of one analyst or of all, oldest first."""
        raise NotImplementedError

    def standing(self, failure: float | None = None) -> Standing:
        """Return the board as anyone may see it."""
        raise NotImplementedError

    def close(self) -> str:
        """Close the board for good, and return when; again, it returns the same."""
        raise NotImplementedError

    def judge(
        self, finalists: Mapping[str, Values], analysts: Mapping[str, str]
    ) -> BoardResults:
        """Judge the finalists of a closed board; again, the same ones get the same results.

        Args:
            finalists: By submission, the values on the vault's rows; without a vault, on all rows.
            analysts: By submission, whose it is.
        """
        raise NotImplementedError
