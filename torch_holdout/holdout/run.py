"""A sealed run: evaluations go in, only the decision to stop comes out."""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NoReturn, final

from torch import nn

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.checks import require_instance
from torch_holdout._shared.distributed import on_first_rank, rank_and_world
from torch_holdout._shared.locks import OwnLock
from torch_holdout._shared.tracebacks import without_frames, without_trace
from torch_holdout.errors import HoldoutClosedError, InvalidArgumentError, SealedValueError
from torch_holdout.holdout.checks import Question, guesses_for, query_key
from torch_holdout.holdout.filling import empty_sums, filled, on_every_rank
from torch_holdout.holdout.gathering import gather
from torch_holdout.holdout.passes import OpenedRun, Passed
from torch_holdout.holdout.queries import Named, named_query, require_query
from torch_holdout.holdout.registration import Registration
from torch_holdout.holdout.run_access import RunAccess
from torch_holdout.holdout.run_checks import (
    account_closed,
    checked_rule,
    no_runs_left,
    sealed_mechanism,
    unknown_run,
)
from torch_holdout.holdout.run_results import Evaluation, Outcome, outcome_of, shares_taken
from torch_holdout.holdout.runs import current_trial
from torch_holdout.holdout.standings import Standings, ask, not_begun
from torch_holdout.ledger.chains import public_mark
from torch_holdout.ledger.run_events import StoredRun, Sums, run_mark
from torch_holdout.ledger.sealed_runs import SealedRuns
from torch_holdout.ledger.symbols import records_said
from torch_holdout.mechanisms.patience import Patience
from torch_holdout.statistics import SealedSums

_log = logging.getLogger("torch_holdout")


@final
class Run:
    """One run of a sealed holdout; made by ``holdout.run(...)``, which describes its arguments.

    Inside it only "stop" is ever said. It is begun by its first evaluation; leaving the ``with``
    block ends it. An error that leaves the block gives the run up if that is free (``give_up``);
    otherwise it stays open, to be resumed by its ``id``.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=1)
        >>> with holdout.run(stop=th.Patience("val_acc", patience=2)) as run:
        ...     for epoch in range(10):
        ...         correct = torch.arange(4) < min(epoch + 1, 3)
        ...         if run.evaluate({"val_acc": correct}, query=f"epoch {epoch}").stop:
        ...             break
        >>> isinstance(run, Run), run.outcome.best_evaluation, run.outcome.stopped_at
        (True, 3, 5)
        >>> run.record(), holdout.winner()  # of the only run both are certain, and free
        (True, 1)
    """

    def __init__(
        self,
        access: RunAccess,
        stop: Patience | None,
        best: str | None,
        name: str | None,
        resume: str | None,
    ) -> None:
        require_instance("access", access, RunAccess)
        self._access = access
        self._mechanism = sealed_mechanism(access.registration)
        self._trial = trial = current_trial(public_mark(access.account))
        if trial is not None:
            name = trial.label
        if trial is not None and resume is None:
            best = trial.best if stop is None and best is None else best
            resume = trial.resumed()
        self._rule = checked_rule(access.registration, stop, best)
        self._name = name
        self._mark = resume
        self._number: int | None = None  # once it is known, the run is found without a search
        self._replays = 0  # passes of a resumed run that may come again
        self._warned = False  # that the values of a query are read once
        self._turn = OwnLock()
        if resume is None:
            self._require_a_share()
            return
        stored = self._stored()
        if (stop is not None or best is not None) and stored.rule != self._rule:
            raise unknown_run("with another rule")
        if stored.state == "open" and access.ledger.closing(access.account) is not None:
            raise account_closed(access.registration.name)
        self._rule = stored.rule
        self._replays = stored.passes

    @property
    def id(self) -> str | None:
        """The run's public id, to resume it by; None before its first evaluation."""
        return self._mark

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it is open."""
        if self._mark is None:
            return None
        summary = self._access.ledger.summary(self._access.account)
        stored = self._of(summary.runs)
        record = records_said(summary.symbols).get(stored.run)
        return outcome_of(stored, self._mechanism, self._mark, record)

    def belongs_to(self, address: str, name: str) -> bool:
        """Whether it is a run of the holdout of that name in that ledger."""
        require_instance("address", address, str)
        require_instance("name", name, str)
        return (self._access.ledger.address, self._access.registration.name) == (address, name)

    @without_frames  # which may hold values
    def evaluate(
        self,
        sums: Mapping[str, Any],
        *,
        query: Named,
        step: str | None = None,
    ) -> Evaluation:
        """Evaluate one model; committed before it returns, and no value is shown.

        Args:
            sums: Values of the whole holdout by statistic, in any array, as ``holdout.ask`` takes
                them; or sealed sums. An evaluation of the statistic that stops the run is a pass;
                others may come with it or in calls of their own; after the stop only where the
                weights themselves name the query.
            query: Text, a weights fingerprint, a module in eval mode, or ``th.digest(model)``.
            step: Which step of the training loop this is. A resumed run that comes to a step again
                with the same weights gets the same answer, and makes no new pass.
        """
        require_instance("sums", sums, Mapping)
        plain = not all(isinstance(own, SealedSums) for own in sums.values())
        if plain or isinstance(query, nn.Module):
            sums = on_every_rank(lambda: self._filled(sums, query))
        return self._passed(sums, named_query(query), step).evaluation

    def end(self) -> Outcome | None:
        """End the run here, and hand over its best evaluation; None if it was never begun."""
        return self._ended(OpenedRun.end)

    def give_up(self) -> Outcome | None:
        """Give the run up, without its best evaluation; None if it was never begun.

        This is free while patience could not have stopped it yet and nothing was said since it
        began, by another run or on request: its share of the budget comes back, and its sums are
        erased.
        """
        return self._ended(OpenedRun.give_up)

    def record(self) -> bool:
        """Say whether this run, which has ended, was better than every run that ended before it.

        Its best evaluation by its own statistic, strictly better than every one of theirs. The bit
        is a symbol: every later evaluation pays for it, by a registered law (``bounds.symbols``).
        Asked again it is the same, free.
        """
        mark = self._mark
        if mark is None:
            raise not_begun()

        def asked(standings: Standings) -> bool:
            run = standings.runs.find(mark)
            if run is None:
                raise unknown_run("in another ledger or account")
            return standings.record(run)

        return ask(self._access, asked)

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(HoldoutClosedError):  # closed meanwhile: there is nothing to end
            if kind is None:
                self.end()
            elif issubclass(kind, Exception) and not (self._trial and self._trial.keeps_open):
                self._give_up_if_free()

    def __copy__(self) -> "Run":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Run":
        return self

    def __repr__(self) -> str:
        return f"<run {self._mark or 'not begun'} of holdout {self._access.registration.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise SealedValueError(
            "Expected a run to stay in its process. Keep run.id, and go on with "
            "holdout.run(resume=run_id)."
        )

    def _passed(
        self, sums: Mapping[str, SealedSums], query: str | WeightsFingerprint, step: str | None
    ) -> Passed:
        """Evaluate one model; the result also has the secret bit whether it is the best so far."""
        asked = Question(sums, query, guesses_for(sums, None), False, step=step)
        if not asked.sums:
            raise InvalidArgumentError("Expected the sums of at least one statistic, but got none.")
        replays, by_weights = self._replays > 0, isinstance(query, WeightsFingerprint)

        def take(opened: OpenedRun, sums: Mapping[str, Sums], key: str) -> Passed:
            return opened.take(sums, key, step, replays=replays, by_weights=by_weights)

        passed = without_trace(lambda: self._ask(asked, take))
        self._replays -= passed.again
        if passed.unread and isinstance(query, str) and not self._warned:
            self._warned = True
            _log.warning(
                "The query %r is evaluation %d of this run already, so these values were not read: "
                "it is one more pass of the same model. If they are another model's, give it a "
                "query of its own, e.g. one with the epoch, or the model in eval mode.",
                query,
                passed.evaluation.number,
            )
        if self._trial is not None and self._mark is not None:
            self._trial.took(self._mark, passed.evaluation.number)
        return passed

    def _filled(self, values: Mapping[str, Any], query: Named) -> dict[str, SealedSums]:
        """Return sealed sums of plain values; raise unless query and values can be taken."""
        require_query(query)
        registration, address = self._access.registration, self._access.ledger.address
        rank, world = rank_and_world()
        return filled(
            values, lambda name: empty_sums(registration, address, name, "holdout", rank, world)
        )

    def _recall(self, sums: Mapping[str, SealedSums], query: str | WeightsFingerprint) -> None:
        """Raise unless this run has evaluated the model; nothing is recorded or charged."""
        asked = Question(sums, query, guesses_for(sums, None), False)
        without_trace(lambda: self._ask(asked, OpenedRun.recall))

    def _give_up_if_free(self) -> Outcome | None:
        """Give the run up if that is free, as ``give_up``; otherwise leave it open."""
        return self._ended(OpenedRun.give_up_if_free)

    def _undo_if_free(self) -> Outcome | None:
        """Give the run up if that is free, also if it has ended without a word."""
        return self._ended(OpenedRun.undo_if_free, also_ended=True)

    @property
    def _weights_path(self) -> str | None:
        """Where the file of the best weights is, if one was written."""
        return self._stored().weights if self._mark is not None else None

    def _keep_weights(self, path: str) -> None:
        """Record where the file of the best weights is."""
        access = self._access
        with access.ledger.account(access.account, budget=access.registration.budget) as account:
            account.runs.update(self._opened(account.runs).run.run, weights=path)

    def _ask(
        self, asked: Question, take: Callable[[OpenedRun, dict[str, Sums], str], Passed]
    ) -> Passed:
        registration, ledger = self._access.registration, self._access.ledger
        ranks = gather(registration, ledger.address, asked)

        def decide() -> tuple[Passed, str]:
            readings = {n: ranks.reading(n, registration, asked) for n in ranks.names}
            sums = {n: each.sums for n, each in readings.items()}
            key = evaluation_key(registration, readings[ranks.names[0]].query)
            with ledger.account(self._access.account, budget=registration.budget) as account:
                opened = self._opened(account.runs)
                passed = take(opened, sums, key)
                mark = run_mark(self._access.account, opened.run.run)
            # Only here, after the commit, does anything leave.
            return passed, mark

        with self._turn:  # of several threads one begins the run
            passed, self._mark = on_first_rank(asked.world, decide)
        return passed

    def _opened(self, runs: SealedRuns) -> OpenedRun:
        """Return the run in a transaction, begun if it was not."""
        access = self._access
        if runs.closed_at is not None:
            raise account_closed(access.registration.name)
        run = runs.find(self._mark, self._number) if self._mark is not None else None
        if run is None and self._mark is not None:
            raise unknown_run("in another ledger or account")
        if run is None:
            for replaced in filter(None, map(runs.find, self._replaced)):
                self._open(runs, replaced).undo_if_free()
            run = runs.begin(self._rule, self._name, seeded=access.noise.seeded)
        if run is None:
            raise no_runs_left(access.registration, runs.all(), access.account)
        self._number = run.run
        return self._open(runs, run)

    def _open(self, runs: SealedRuns, run: StoredRun) -> OpenedRun:
        access = self._access
        return OpenedRun(runs, run, access.registration, self._mechanism, access.noise)

    @property
    def _replaced(self) -> tuple[str, ...]:
        """Ids of runs of earlier tries of the same trial, whose place this one takes."""
        return () if self._trial is None else self._trial.replaced

    def _ended(
        self, action: Callable[[OpenedRun], None], *, also_ended: bool = False
    ) -> Outcome | None:
        if self._mark is None:
            return None

        def transaction() -> None:
            access = self._access
            with access.ledger.account(
                access.account, budget=access.registration.budget
            ) as account:
                opened = self._opened(account.runs)
                if opened.run.state == "open" or also_ended:
                    action(opened)

        without_trace(transaction)
        return self.outcome

    def _stored(self) -> StoredRun:
        return self._of(self._access.ledger.runs(self._access.account))

    def _of(self, runs: Iterable[StoredRun]) -> StoredRun:
        for run in runs:
            if run_mark(self._access.account, run.run) == self._mark:
                return run
        raise unknown_run("in another ledger or account")

    def _require_a_share(self) -> None:
        access = self._access
        runs = access.ledger.runs(access.account)
        if access.ledger.closing(access.account) is not None:
            raise account_closed(access.registration.name)
        replaced = set(self._replaced)
        others = (run for run in runs if run_mark(access.account, run.run) not in replaced)
        if shares_taken(others) >= access.registration.budget:
            raise no_runs_left(access.registration, runs, access.account)


def evaluation_key(registration: Registration, query: str) -> str:
    """Return the key of an evaluation: the weights, and the code of every statistic."""
    keys = (query_key(statistic, query) for statistic in registration.statistics.values())
    return hashlib.sha256(" ".join(keys).encode()).hexdigest()
