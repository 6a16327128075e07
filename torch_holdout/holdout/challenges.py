"""A challenge: values of each example go in, keep or revert comes out. One transaction each."""

import logging
import math
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple, cast, final

from torch import Tensor

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.checks import require_between, require_choice
from torch_holdout._shared.tracebacks import without_trace
from torch_holdout.bounds.challenges import challenge_bracket, gain_low, sign_test_keeps
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError
from torch_holdout.holdout.challenge_results import Challenge, challenge_of
from torch_holdout.holdout.checks import Question, owner_of
from torch_holdout.holdout.gathering import gather
from torch_holdout.holdout.incumbents import (
    Folder,
    Incumbents,
    Layout,
    folder_of,
    incumbents_of,
)
from torch_holdout.holdout.passes import OpenedRun
from torch_holdout.holdout.registration import Registration
from torch_holdout.holdout.run import evaluation_key
from torch_holdout.holdout.run_access import RunAccess
from torch_holdout.holdout.run_checks import account_closed, no_runs_left, sealed_mechanism
from torch_holdout.holdout.runs import current_run
from torch_holdout.ledger.challenges import (
    RULES,
    Rule,
    StoredChallenge,
    Test,
    challenges_of,
    incumbents_after,
    query_mark,
)
from torch_holdout.ledger.holdouts import Account
from torch_holdout.ledger.run_events import Sums
from torch_holdout.mechanisms.sealed import Sealed
from torch_holdout.statistics import BoundedMean, GroupedMean, Statistic, ZeroOne
from torch_holdout.statistics.arrays import as_tensor

_LARGEST_SQUARES = 2**62
_log = logging.getLogger("torch_holdout")


class Paired(NamedTuple):
    """Sums over examples of the challenger's gains, in levels, positive where it is better. Raw."""

    wins: int
    losses: int
    total: int
    squares: int

    def __repr__(self) -> str:
        return "<sealed differences>"


@final
@dataclass(frozen=True, repr=False)
class Contest:
    """What is compared, and when the challenger is kept; all of it is public."""

    statistic: str
    rule: Rule
    margin: float
    size: int
    resolution: int
    kind: Statistic

    @property
    def test(self) -> Test:
        """The test, by the registered kind of the statistic."""
        return "sign" if isinstance(self.kind, ZeroOne) else "moments"

    def layout(self, query: str) -> Layout:
        """Return what the levels of a query are."""
        return Layout(self.statistic, query, self.test, self.size, self.resolution)

    def paired(self, challenger: Tensor, incumbent: Tensor) -> Paired:
        """Compare two models on each example; the work does not depend on their values."""
        gains = challenger - incumbent if self.kind.mode == "max" else incumbent - challenger
        if self.size * self.resolution**2 < _LARGEST_SQUARES:
            squares = int((gains * gains).sum())
        else:
            squares = sum(gain * gain for gain in gains.tolist())
        return Paired(int((gains > 0).sum()), int((gains < 0).sum()), int(gains.sum()), squares)

    def keeps(self, found: Paired, bracket: float) -> bool:
        """Whether the challenger is kept, at the bracket c of this moment."""
        if self.rule == "margin":
            width = Fraction(self.kind.high) - Fraction(self.kind.low)
            gain = Fraction(found.total, self.size * self.resolution) * width
            return gain > Fraction(self.margin)
        if self.test == "sign":
            return sign_test_keeps(found.wins, found.losses, bracket)
        low = gain_low(found.total, found.squares, self.size, self.resolution, bracket)
        return low >= 0


def challenge(
    access: RunAccess,
    statistic: str,
    values: object,
    *,
    query: str | WeightsFingerprint,
    rule: str,
    margin: float,
    folder: Folder,
) -> Challenge:
    """Compare a challenger with the incumbent; ``ReusableHoldout.challenge`` has the arguments."""
    registration = access.registration
    mechanism = sealed_mechanism(registration)
    contest = _contest(registration, mechanism, statistic, rule, margin)
    where = (access.ledger.address, access.account, folder)
    folder_of(*where)  # refused before anything is read

    def decided() -> Challenge:
        levels, sums, key = _read(access, contest, values, query)
        with access.ledger.account(access.account, budget=registration.budget) as account:
            kept = incumbents_of(*where, account.keyed)
            said = _Challenger(access, mechanism, contest, account, kept).take(levels, sums, key)
        # Only here, after the commit, does anything leave.
        if not said.repeated and said.dethroned is not None:
            kept.forget(said.dethroned)
        return said.challenge

    challenged = without_trace(decided)
    if challenged.repeated and isinstance(query, str):
        _log.warning(
            "The query %r has challenged before, so this is the answer of then, and these values "
            "were not compared. If they are another model's, give it a query of its own.",
            query,
        )
    elif challenged.lost and not challenged.repeated:
        warnings.warn(
            f"The values of the incumbent of {statistic!r} are lost: their file is missing, "
            f"damaged or another account's. The challenger is the new incumbent without a test; "
            f"nothing was kept or claimed. Keep the folder of challenges with the ledger.",
            HoldoutWarning,
            stacklevel=4,
        )
    return challenged


class _Said(NamedTuple):
    """What a challenge says, and the public id of the query whose values are not needed."""

    challenge: Challenge
    dethroned: str | None
    repeated: bool


@final
@dataclass(frozen=True, repr=False)
class _Challenger:
    """A challenge inside the ledger's transaction."""

    access: RunAccess
    mechanism: Sealed
    contest: Contest
    account: Account
    kept: Incumbents

    def take(self, levels: Tensor, sums: Sums, query: str) -> _Said:
        """Decide, and record it; a query that was asked before repeats its answer."""
        contest, runs = self.contest, self.account.runs
        earlier = challenges_of(runs.symbols("challenge"))
        incumbents = incumbents_after(earlier)
        # What a killed process has left goes, also if this one only repeats.
        self.kept.forget_all_but([query_mark(i.statistic, i.query) for i in incumbents.values()])
        for known in earlier:
            if known.asks_again(contest.statistic, query):
                self._require_same(known)
                return _Said(challenge_of(known, repeated=True), None, True)
        if runs.closed_at is not None:
            raise account_closed(self.access.registration.name)
        incumbent = incumbents.get(contest.statistic)
        before = None if incumbent is None else self.kept.read(contest.layout(incumbent.query))
        # The same work whatever will be decided: the challenger may be the next incumbent.
        bracket, run = self._evaluated(sums, query, len(earlier) + 1)
        self.kept.keep(contest.layout(query), levels)
        kept = None
        if before is not None:
            kept = contest.keeps(contest.paired(levels, before), bracket)
        decided = StoredChallenge(
            number=len(earlier) + 1,
            run=run,
            statistic=contest.statistic,
            query=query,
            challenged=None if incumbent is None else incumbent.query,
            lost=incumbent is not None and before is None,
            kept=kept,
            rule=contest.rule,
            margin=contest.margin,
            test=contest.test,
            nats=0.0,
        )
        symbol = runs.say(
            "challenge",
            run=run,
            value=int(bool(kept)),
            choices=1 if kept is None else 2,
            detail=decided.detail(),
            seeded=self.access.noise.seeded,
        )
        old = decided.dethroned
        return _Said(
            challenge_of(replace(decided, nats=symbol.nats), repeated=False),
            None if old is None else query_mark(contest.statistic, old),
            False,
        )

    def _evaluated(self, sums: Sums, query: str, number: int) -> tuple[float, int]:
        """Record the evaluation in a run of its own; return the test's bracket, and the run."""
        access, runs, statistic = self.access, self.account.runs, self.contest.statistic
        name = current_run() or f"challenge {number}"
        begun = runs.begin({"stop": None, "best": statistic}, name, seeded=access.noise.seeded)
        if begun is None or begun.share is None:
            raise no_runs_left(access.registration, runs.all(), access.account)
        said = runs.said_by_others(begun.run, self.mechanism)
        opened = OpenedRun(runs, begun, access.registration, self.mechanism, access.noise)
        opened.take({statistic: sums}, query, None, replays=False)
        replace(opened, run=replace(begun, evaluations=1, passes=1)).end()
        runs_planned = access.registration.budget
        return challenge_bracket(run=begun.share, runs=runs_planned, said=said), begun.run

    def _require_same(self, known: StoredChallenge) -> None:
        asked = (self.contest.rule, self.contest.margin)
        if asked != (known.rule, known.margin):
            raise InvalidArgumentError(
                f"Expected rule={known.rule!r} with margin={known.margin:g}, by which this query "
                f"was decided before, but got rule={asked[0]!r} with margin={asked[1]:g}: the same "
                f"query is the same answer. Nothing was charged."
            )


def _contest(
    registration: Registration, mechanism: Sealed, name: str, rule: str, margin: float
) -> Contest:
    """Return what is compared; raise unless this account can compare it."""
    require_choice("rule", rule, RULES)
    statistic = registration.statistic(name)
    if mechanism.epsilon is not None:
        raise InvalidArgumentError(
            f"Expected a sealed holdout without noise, but {registration.name!r} has "
            f"epsilon={mechanism.epsilon:g}: a challenge compares the values themselves. Make an "
            f"account with th.Sealed(evaluations=...). Nothing was charged."
        )
    size = registration.units(name)
    paired = size == registration.size or isinstance(statistic, GroupedMean)
    if not isinstance(statistic, BoundedMean) or not paired:
        raise InvalidArgumentError(
            f"Expected a statistic with one value for each example, which can be paired, but "
            f"{name!r} is {type(statistic).__name__}. Challenge with th.ZeroOne, th.BoundedMean or "
            f"th.GroupedMean. Nothing was charged."
        )
    width = statistic.high - statistic.low
    require_between("margin", margin, 0, width)
    if rule == "certified" and margin:
        raise InvalidArgumentError(
            "Expected no margin with rule='certified', which tests for any gain. Use "
            "rule='margin', which claims nothing for a single keep. Nothing was charged."
        )
    own = cast(Rule, rule)
    return Contest(name, own, float(margin), size, registration.levels, statistic)


def _read(
    access: RunAccess, contest: Contest, values: object, query: str | WeightsFingerprint
) -> tuple[Tensor, Sums, str]:
    """Return the levels of a whole pass, their sums and the query's key. Raw."""
    registration, name = access.registration, contest.statistic
    own = contest.kind
    plain: BoundedMean = BoundedMean(own.low, own.high, mode=own.mode)
    if isinstance(own, ZeroOne):
        plain = ZeroOne()
    elif isinstance(own, GroupedMean):
        plain = GroupedMean(own.low, own.high, mode=own.mode, groups=own.groups)
    owner = owner_of(registration, access.ledger.address, name, "holdout")
    summed = plain.accumulator(contest.resolution, owner=owner, size=registration.size)
    summed.identity = own.identity()
    tensor = as_tensor(values, missing=False if isinstance(own, ZeroOne) else math.nan)
    summed.update(tensor)
    asked = Question({name: summed}, query, {}, False)
    ranks = gather(registration, access.ledger.address, asked)
    reading = ranks.reading(name, registration, asked)
    if name in ranks.groups:
        levels = ranks.groups[name].levels
    else:
        levels = plain.levels((tensor,), {}, contest.resolution)
    levels = levels.clamp(0, contest.resolution).cpu()
    key = evaluation_key(registration, reading.query)
    return levels, reading.sums, key
