"""A board as a holdout for the guard and the metric: rows of predictions in, answers out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, final

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.checks import require_choice, require_whole, shown
from torch_holdout._shared.distributed import on_first_rank
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutClosedError,
    HoldoutError,
    InvalidArgumentError,
)
from torch_holdout.holdout.checks import Role
from torch_holdout.holdout.results import Answer
from torch_holdout.ledger.chains import public_mark
from torch_holdout.mechanisms import Mechanism
from torch_holdout.mechanisms.base import Decision, Guess, Query, Release
from torch_holdout.service.client.answers import BoardStatus, PublicStatistic, Quota, RemoteAnswer
from torch_holdout.service.client.rows import RemoteRows
from torch_holdout.service.client.uploads import Upload, npy
from torch_holdout.statistics import SealedSums, Statistic

if TYPE_CHECKING:
    from torch_holdout.service.client.client import RemoteBoard

_ANSWERS = ("ladder", "record")  # the modes that tell values
_ELSEWHERE = "the labels and the ledger are the board's, in another process"


@final
@dataclass(frozen=True, kw_only=True)
class BoardRule(Mechanism):
    """What is public of a board's rule: an answer changes when a value is better by a step."""

    kind: ClassVar[str] = "board"
    guess_rule: ClassVar[str | None] = "improvement"

    step: float

    def guess_for(self, statistic: str, last: Release | None, given: Guess) -> Guess:
        """Raise always: the board compares."""
        raise _remote("a guess")

    def decide(self, query: Query) -> Decision:
        """Raise always: the board decides."""
        raise _remote("a decision")

    def epsilon_per_step(self, units: int) -> float:
        """Return infinity: boards have no noise."""
        return math.inf

    def guess_distance(self) -> float:
        """Return the step."""
        return self.step

    def allows_fresh(self) -> bool:
        """Whether the same predictions may be asked about again: no."""
        return False


@final
class BoardStatistic(Statistic):
    """What is public of a board's statistic: bounds and direction. Its values are computed there.

    Example:
        >>> BoardStatistic(PublicStatistic(low=0.0, high=1.0, mode="max", kind="accuracy")).mode
        'max'
    """

    needs_order: ClassVar[bool] = True
    cuts_blocks: ClassVar[bool] = False

    def __init__(self, public: PublicStatistic) -> None:
        self._set_bounds(public.low, public.high, "min" if public.mode == "min" else "max")
        self._kind = public.kind

    def units(self, size: int) -> int:
        """Return ``size``: what a board's units are, its certificate says."""
        return size

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds and mode."""
        return {"kind": self._kind, "low": self.low, "high": self.high, "mode": self.mode}

    def source(self) -> str:
        """Return that the values are computed elsewhere."""
        return "a board's own"

    def _empty(self, resolution: int) -> SealedSums:
        raise _remote("a sum of values")


@final
class RemoteHoldout:
    """A board in another process, where the guard and the metric expect a holdout.

    The validation set has inputs only. The step returns predictions under the name of the board's
    first statistic, which go out once in a pass, by rank 0; the answers to all statistics come
    back. What was not told, because nothing was better by a step yet, is the public baseline, or
    the worse bound of a statistic without one, and is marked as a guess. Copies and pickles are the
    same board; a pickle has no token, and reads ``TORCH_HOLDOUT_TOKEN``.

    Args:
        board: ``th.remote(url)``.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.remote("https://host/boards/digits-2026").holdout()
        >>> holdout, holdout.name  # nothing was sent yet
        (RemoteHoldout('https://host/boards/digits-2026'), 'digits-2026')
    """

    def __init__(self, board: "RemoteBoard") -> None:
        self._board = board
        self._quota: Quota | None = None  # as of the last answer
        self._budget: int | None = None
        self._last: dict[str, float] = {}  # what was told last, of each statistic

    @property
    def name(self) -> str:
        """What the board is called in addresses."""
        return self._board.name

    @property
    def address(self) -> str:
        """The address of the board's page."""
        return self._board.url

    @property
    def account(self) -> str:
        """A public mark of the board's address."""
        return public_mark(self._board.url)

    @property
    def size(self) -> int:
        """The number of rows, each of which a pass sees once."""
        return self._facts.rows

    @property
    def statistics(self) -> dict[str, Statistic]:
        """What is public of the board's statistics."""
        return {name: BoardStatistic(each) for name, each in self._facts.statistics.items()}

    @property
    def asked_for(self) -> tuple[str, ...]:
        """The name that a step returns predictions under: that of the first statistic."""
        return (self._facts.first,)

    @property
    def mechanism(self) -> Mechanism:
        """What is public of the board's rule."""
        return BoardRule(step=self._facts.step or 0.0)

    @property
    def budget(self) -> int:
        """The values that the team may be told in all; if unknown, from when it was first asked."""
        if self._budget is None:
            known = self._quota
            self._asked_quota()
            self._quota = known or self._quota  # an answer may have said since that none is left
        return self._budget or 0

    @property
    def budget_left(self) -> int:
        """The values that the team may still be told, as of the last answer."""
        return _values_left(self._known_quota())

    @property
    def questions_left(self) -> int | None:
        """How many submissions the board takes from the team, as of the last answer."""
        return self._known_quota().submissions_left

    @property
    def exhausted(self) -> bool:
        """Whether new predictions are not answered any more; the board is asked."""
        return _values_left(self._asked_quota()) == 0

    def status(self) -> BoardStatus:
        """Return the board's public facts, and what the team may still ask."""
        return self._board.status()

    def require_values(self) -> None:
        """Raise unless the board tells values and is open: a gate keeps or reverts, once a run."""
        board = self._board.status()
        if board.mode not in _ANSWERS:
            raise InvalidArgumentError(self._instead(board.mode))
        if board.state != "open":
            raise HoldoutClosedError(
                f"Expected board {self.name!r} to take submissions, but it has {board.state}. Its "
                f"results are, or will be, at {self.address}. Nothing was sent."
            )

    def accumulator(
        self, name: str, *, role: Role = "holdout", rank: int = 0, world: int = 1
    ) -> RemoteRows:
        """Return what the predictions of a pass are added to."""
        require_choice("role", role, ("holdout", "guess"))
        require_whole("world", world, 1, 2**20)
        require_whole("rank", rank, 0, world - 1)
        self._require_known(name)
        if role == "guess":
            raise InvalidArgumentError(
                f"Expected no training values for board {self.name!r}: it compares with its own "
                f"last answer. Leave out guess_dataloaders= and update_train(). Nothing was sent."
            )
        return RemoteRows(self._facts, rank, world)

    def estimation_set(self) -> int:
        """Raise always: a board takes no training values."""
        raise _remote("an estimation set")

    def release(
        self,
        name: str,
        sums: Any,
        *,
        query: str | WeightsFingerprint,
        guess: Any = None,
    ) -> Answer:
        """Submit the predictions of a pass; return the answer to one statistic."""
        self._require_known(name)
        guesses = None if guess is None else {name: guess}
        return self.release_all({name: sums}, query=query, guesses=guesses)[name]

    def release_all(
        self,
        sums: Mapping[str, Any],
        *,
        query: str | WeightsFingerprint,
        guesses: Mapping[str, Any] | None = None,
    ) -> dict[str, Answer]:
        """Submit the predictions of a pass; return the answers to all of the board's statistics.

        The submission's name is its content. The weights' fingerprint stays here: it only tells
        whether they changed during the pass. In a process group every rank must ask.
        """
        rows = self._one_pass(sums, guesses)
        whole = rows.gather(query)

        def ask() -> RemoteAnswer | None:
            upload = Upload(npy(whole.predictions()))
            try:
                return self._board._send(upload)
            except BudgetExhaustedError:
                return None

        answer = on_first_rank(rows.world, ask)
        if answer is None:
            return self._exhausted_answers()
        self._quota = answer.quota
        return {name: self._one(name, answer) for name in self._facts.statistics}

    def recall(self, name: str, query: object) -> NoReturn:
        """Raise always: a board knows predictions, not weights."""
        raise _remote("recall by weights", "submit the predictions again, which is free")

    def run(self, **_: Any) -> NoReturn:
        """Raise always: sealed runs are those of a holdout in this process."""
        raise _remote("a sealed run")

    def close(self, **_: Any) -> NoReturn:
        """Raise always: the host closes a board."""
        raise _remote("closing", "the host runs torch-holdout board close")

    def certificate(self, failure: float = 0.05) -> NoReturn:
        """Raise always: the board's own certificate counts all teams."""
        raise _remote("the certificate", "read board.leaderboard() or its page")

    def __copy__(self) -> "RemoteHoldout":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "RemoteHoldout":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteHoldout, (self._board,)

    def __repr__(self) -> str:
        return f"RemoteHoldout({self.address!r})"

    @property
    def _facts(self) -> BoardStatus:
        return self._board._known()

    def _known_quota(self) -> Quota:
        return self._asked_quota() if self._quota is None else self._quota

    def _asked_quota(self) -> Quota:
        status = self._board.status()
        if status.quota is None:
            raise HoldoutError(
                f"Expected a team's token for board {self.name!r}, because an evaluation is "
                f"charged to a team, but this one is a host's or a reader's, or there is none. Set "
                f"TORCH_HOLDOUT_TOKEN."
            )
        self._quota = status.quota
        if self._budget is None:
            known = status.releases
            self._budget = _values_left(status.quota) if known is None else known
        return status.quota

    def _require_known(self, name: object) -> None:
        known = list(self._facts.statistics)
        if name not in known:
            raise InvalidArgumentError(
                f"Expected one of the statistics {known} of board {self.name!r}, but got "
                f"{shown(name)}."
            )

    def _one_pass(self, sums: Mapping[str, Any], guesses: Mapping[str, Any] | None) -> RemoteRows:
        if guesses:
            raise InvalidArgumentError(
                f"Expected no guesses for board {self.name!r}: it compares with its own last "
                f"answer. Nothing was sent."
            )
        given = list(sums.values())
        if len(given) != 1 or not isinstance(given[0], RemoteRows):
            raise InvalidArgumentError(
                f"Expected the predictions of one pass, {{{self._facts.first!r}: "
                f"holdout.accumulator({self._facts.first!r})}}: they answer all statistics of "
                f"board {self.name!r}. Nothing was sent."
            )
        return given[0]

    def _one(self, name: str, answer: RemoteAnswer) -> Answer:
        """Return the answer to one statistic; what was not told is public, and a guess."""
        told = answer.values.get(name)
        source: Literal["release", "guess"] = "release" if answer.better else "guess"
        if told is None:
            told, source = self._untold(name), "guess"
        self._last[name] = told
        kind: Literal["release", "guess", "repeat"] = (
            "repeat" if answer.kind == "repeat" else source
        )
        left = _values_left(answer.quota)
        return Answer(told, kind, left, source, answer.position, self.account, name)

    def _untold(self, name: str) -> float:
        """Return what is known without an answer: the last one, the baseline, the worse bound."""
        facts, own = self._facts, self._facts.statistics[name]
        if name in self._last:
            return self._last[name]
        if name == facts.first and facts.baseline is not None:
            return facts.baseline
        return own.high if own.mode == "min" else own.low

    def _exhausted_answers(self) -> dict[str, Answer]:
        self._quota = Quota(submissions_left=0, releases_left=0)
        return {
            name: Answer(math.nan, "exhausted", 0, None, None, self.account, name)
            for name in self._facts.statistics
        }

    def _instead(self, mode: str) -> str:
        url = self.address
        if mode == "gate":
            return (
                f"Expected a board that tells values, because the passes of a training need "
                f"numbers, but {self.name!r} is a gate, which keeps or reverts. Train without it, "
                f"and challenge at the end:\n"
                f"+    answer = th.remote({url!r}).submit(predictions)  # answer.better: keep it\n"
                f"Nothing was sent."
            )
        return (
            f"Expected a board that tells values, because the passes of a training need numbers, "
            f"but {self.name!r} is sealed: it tells nothing before it is closed. Train without it, "
            f"and submit what you chose:\n"
            f"+    th.remote({url!r}).submit(predictions, final=True)\n"
            f"Nothing was sent."
        )


def _values_left(quota: Quota) -> int:
    """Return how many values may still be told: each needs a submission too."""
    releases = quota.submissions_left if quota.releases_left is None else quota.releases_left
    return min(quota.submissions_left, releases)


def _remote(what: str, instead: str = "") -> HoldoutError:
    advice = f" Instead, {instead}." if instead else ""
    return HoldoutError(
        f"Expected a holdout in this process for {what}, but this one is remote: {_ELSEWHERE}."
        f"{advice}"
    )
