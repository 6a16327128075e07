"""A board: many analysts, one holdout, one total of what they are told.

Each analyst has a quota of its own, reserved from the board's budget, inside the ledger's
transaction. Certificates count what was told to all accounts together, so a second account of the
same person can waste its own quota and void nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, final

from torch_holdout._shared.checks import require_failure, require_text, require_whole
from torch_holdout._shared.text import counted
from torch_holdout._shared.tracebacks import without_trace
from torch_holdout.bounds.assumptions import assumptions_about
from torch_holdout.bounds.certificate import SMALLEST_FAILURE
from torch_holdout.bounds.codes import told_interval
from torch_holdout.errors import (
    BoardClosedError,
    HoldoutError,
    HoldoutMismatchError,
    InvalidArgumentError,
    QuotaExhaustedError,
)
from torch_holdout.holdout.board_answers import GUIDANCE, BoardAnswers, analyst_of
from torch_holdout.holdout.board_deciding import Incumbent, Submission, decided
from torch_holdout.holdout.board_judging import Judged, Verdicts, entries_of, measured
from torch_holdout.holdout.board_registration import BoardRegistration
from torch_holdout.holdout.board_results import (
    Analyst,
    BoardAnswer,
    BoardResults,
    Claim,
    Standing,
)
from torch_holdout.holdout.board_results import Finalist as Finalist
from torch_holdout.holdout.board_results import Quota as Quota
from torch_holdout.holdout.board_results import Result as Result
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.analysts import BoardAccount
from torch_holdout.ledger.board_events import BoardTerms, Said, StoredAnalyst
from torch_holdout.ledger.boards_ledger import BoardReading
from torch_holdout.mechanisms.board import Feedback
from torch_holdout.statistics import Statistic

Values = Mapping[str, Any]
_QUERY = re.compile(r"[0-9a-f]{64}")
_LARGEST = 2**31 - 1


@final
class BoardHoldout:
    r"""A holdout that many analysts ask, each with a quota, all on one account.

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

    Guarantee:
        With probability ``1 - failure``, at once for every submission of every account:
        :math:`n\,\mathrm{kl}(h \| P) \le c`, c the code length of all that the board has told
        before it (``bounds.codes``). Whatever the analysts tell each other, and however many
        accounts one of them has.

    Example:
        >>> import torch, torch_holdout as th
        >>> from torch_holdout.holdout.board import BoardHoldout, Feedback
        >>> board = BoardHoldout(
        ...     "memory://", name="digits", size=1000, statistics={"accuracy": th.ZeroOne()},
        ...     feedback=Feedback(mode="ladder", baseline=0.55, step=0.01), budget=16,
        ...     submissions=20)
        >>> board.add_analyst("alpha", submissions=10, releases=8).releases_left
        8
        >>> right = torch.arange(1000) < 900
        >>> answer = board.submit("alpha", {"accuracy": right}, query="5e" * 32)
        >>> answer.kind, round(answer.results["accuracy"].value, 2), answer.quota.releases_left
        ('release', 0.9, 7)
        >>> board.submit("alpha", {"accuracy": right}, query="5e" * 32).kind
        'repeat'
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
        self._registration = BoardRegistration(
            name=name,
            size=size,
            statistics=statistics,
            feedback=feedback,
            budget=budget,
            submissions=submissions,
            vault_size=vault_size,
            failure=failure,
            registered=registered or {},
            resolution=resolution,
            grid=grid,
        )
        self._ledger = Ledger(url)
        self._account: str | None = None

    @property
    def name(self) -> str:
        """The board's name in its ledger."""
        return self._registration.name

    @property
    def address(self) -> str:
        """The ledger's address, without a password."""
        return self._ledger.address

    def attach(self) -> None:
        """Create the account, or check that it has these parameters (``HoldoutMismatchError``)."""
        self._attached()

    def add_analyst(self, name: str, *, submissions: int, releases: int) -> Analyst:
        """Add an analyst; its releases are reserved from the budget.

        Raises:
            InvalidArgumentError: It exists, or others have reserved too much of the budget.
        """
        require_text("name", name)
        require_whole("submissions", submissions, 1, _LARGEST)
        require_whole("releases", releases, 0, _LARGEST)
        with self._ledger.board(self._attached()) as board:
            if board.stands.closed_at is not None:
                raise self._closed()
            added = board.add(name, submissions=submissions, releases=releases)
        return analyst_of(added)

    def analysts(self) -> list[Analyst]:
        """Return the analysts, in the order they were added."""
        return [analyst_of(own) for own in self._reading().analysts]

    def submit(
        self,
        analyst: str,
        values: Values,
        *,
        query: str,
        incumbent: Incumbent | None = None,
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
        require_text("analyst", analyst)
        _require_query(query)
        self._attached()

        def answered() -> BoardAnswer | HoldoutError:
            sealed = self._registration.feedback.mode == "sealed"
            levels = {} if sealed else self._registration.open_part.levels(values)
            return self._submit(analyst, query, Submission(levels, incumbent))

        answer = without_trace(answered)
        if isinstance(answer, HoldoutError):
            raise answer
        return answer

    def recall(self, analyst: str, query: str) -> BoardAnswer | None:
        """Return the earlier answer to a submission as a repeat; None, and no charge, without."""
        _require_query(query)
        found = self._ledger.board_submission(self._attached(), analyst, query)
        if found is None:
            return None
        event, own, terms = found
        return self._answers(terms).answer(event, own, repeated=True)

    def answers(
        self, analyst: str | None = None, *, after: int = 0, limit: int | None = None
    ) -> list[BoardAnswer]:
        """Return the answers so far, of one analyst or of all, oldest first.

        ``after`` is a submission's position; ``limit`` the most that are returned.
        """
        events, known, terms = self._ledger.board_submissions(
            self._attached(), analyst, after, limit
        )
        answers = self._answers(terms)
        return [
            answers.answer(event, known[str(event.event.analyst)], repeated=False)
            for event in events
        ]

    def standing(self, failure: float | None = None) -> Standing:
        """Return the board as anyone may see it."""
        if failure is not None:
            require_failure(failure, SMALLEST_FAILURE)
        reading = self._reading()
        answers = self._answers(reading.terms, failure)
        known = {own.analyst: own for own in reading.analysts}
        best = [
            answers.answer(event, known[str(event.event.analyst)], repeated=False)
            for event in sorted(reading.best, key=lambda event: self._sorting(reading.terms, event))
        ]
        stands = reading.stands
        return Standing(
            best=tuple(best),
            analysts=tuple(analyst_of(own) for own in reading.analysts),
            position=stands.submissions,
            events=stands.events,
            chain=reading.chain,
            budget=reading.budget,
            budget_left=reading.budget - stands.releases,
            nats=stands.said,
            closed_at=stands.closed_at,
            claim=self._claim(answers, answers.bracket(stands.submissions + 1, stands.said)),
        )

    def head(self) -> tuple[str, int, str | None]:
        """Return chain, number of events and when it was closed: a standing changes with these."""
        return self._ledger.board_head(self._attached())

    def close(self) -> str:
        """Close the board for good, and return when; again, it returns the same."""
        with self._ledger.board(self._attached()) as board:
            return board.close()

    def judge(
        self, finalists: Mapping[str, Values], analysts: Mapping[str, str | Sequence[str]]
    ) -> BoardResults:
        """Judge the finalists of a closed board; again, the same ones get the same results.

        Args:
            finalists: By submission, the values on the vault's rows; without a vault, on all rows.
            analysts: By submission, whose it is; several, where they submitted the same content.

        Raises:
            HoldoutMismatchError: The board was judged on other finalists, or on other labels.
        """
        reading = self._reading()
        if reading.stands.closed_at is None:
            raise HoldoutError(
                f"Expected board {self.name!r} to be closed before its finalists are judged, but "
                f"it is open. Close it first. Nothing was judged."
            )
        submitted, _, terms = self._ledger.board_submissions(self._attached())
        events = {(str(e.event.analyst), str(e.event.query)): e for e in submitted}
        entries = entries_of(finalists, events, analysts)
        judged = without_trace(lambda: measured(self._registration.final_part, finalists, entries))
        self._write(judged)
        contents = len({event.event.query for event in submitted})
        verdicts = Verdicts(self._registration, terms, judged, contents)
        chain = self._reading().chain
        return verdicts.results(closed_at=str(reading.stands.closed_at), chain=chain)

    def require_unjudged(self) -> None:
        """Raise if the board was judged: its results stand, whatever is lost since."""
        with self._ledger.board(self._attached()) as board:
            if board.judged() is not None:
                raise self._other_finalists()

    def _submit(
        self, analyst: str, query: str, submission: Submission
    ) -> BoardAnswer | HoldoutError:
        """Answer in one transaction; a refusal is committed too, and says nothing."""
        with self._ledger.board(self._attached()) as board:
            answers = self._answers(board.terms)
            known = board.find(analyst, query)
            if known is not None:
                return answers.answer(known, board.analyst(analyst), repeated=True)
            if board.stands.closed_at is not None:
                return self._closed()
            own = board.analyst(analyst)
            refusal = self._refusal(board, own)
            if refusal is not None:
                board.refuse(analyst)
                return refusal
            said = decided(board, own, self._registration, submission)
            event = board.record(own, query, said)
            after = own.after(said, query, event.position)
        # Only here, after the commit, does anything leave.
        return answers.answer(event, after, repeated=False)

    def _refusal(self, board: BoardAccount, analyst: StoredAnalyst) -> HoldoutError | None:
        """Return why nothing is answered, before anything is decided; None if something is left."""
        values = self._registration.feedback.shows_values
        if values and board.budget_left < 1:
            return QuotaExhaustedError(
                f"The budget of board {self.name!r} ({counted(board.budget, 'release')}) is "
                f"spent. Nothing was answered or charged.",
                "board",
            )
        spent = None
        if analyst.submissions >= analyst.max_submissions:
            spent = counted(analyst.max_submissions, "submission")
        elif values and analyst.releases >= analyst.max_releases:
            spent = counted(analyst.max_releases, "release")
        if spent is None:
            return None
        return QuotaExhaustedError(
            f"{analyst.analyst!r} has used its {spent} on board {self.name!r}. Nothing was "
            f"answered or charged."
        )

    def _write(self, judged: Judged) -> None:
        """Write what is judged, or compare it with what was: a vault is asked once."""
        content = judged.content(self._registration.final_part)
        with self._ledger.board(self._attached()) as board:
            known = board.judged()
            if known is None:
                board.judge(content)
                return
        if known != content:
            raise self._other_finalists()

    def _claim(self, answers: BoardAnswers, bracket: float) -> Claim:
        statistics = answers.terms.registered.statistics
        widths, normalised = {}, []
        for name, statistic in statistics.items():
            low, high = told_interval(
                answer=0.5,
                grid=statistic.grid,
                bracket=bracket,
                units=statistic.units,
                resolution=answers.terms.registered.resolution,
                exact=statistic.interval_kind == "zero_one",
            )
            normalised.append((high - low) / 2)
            widths[name] = normalised[-1] * (statistic.high - statistic.low)
        return Claim(
            bracket=bracket,
            half_width=widths,
            failure=answers.failure,
            certified=normalised[0] < GUIDANCE,
            assumptions=assumptions_about({}, len(statistics)),
        )

    def _sorting(self, terms: BoardTerms, event: Any) -> tuple[int, int]:
        index = next(iter(Said.of_event(event.event).grid.values()))
        return (index if terms.first.mode == "min" else -index), event.position

    def _answers(self, terms: BoardTerms, failure: float | None = None) -> BoardAnswers:
        return BoardAnswers(terms, self._registration.failure if failure is None else failure)

    def _reading(self) -> BoardReading:
        return self._ledger.board_reading(self._attached())

    def _attached(self) -> str:
        if self._account is None:
            own = self._registration
            self._account = self._ledger.register_board(
                own.name, own.identity(), budget=own.budget, digests=own.digests
            )
        return self._account

    def _other_finalists(self) -> HoldoutError:
        return HoldoutMismatchError(
            f"Expected the finalists and labels that closed board {self.name!r} was judged on, but "
            f"these differ. Its results stand; other finalists need new labels."
        )

    def _closed(self) -> HoldoutError:
        return BoardClosedError(
            f"Expected board {self.name!r} to be open, but it was closed, for good. Nothing was "
            f"answered or charged."
        )


def _require_query(query: object) -> None:
    if not isinstance(query, str) or not _QUERY.fullmatch(query):
        raise InvalidArgumentError(
            "Expected `query` to be a content's SHA-256, 64 hexadecimal digits in lower case."
        )
