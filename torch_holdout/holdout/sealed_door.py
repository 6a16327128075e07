"""What a sealed holdout is asked: runs, which is best, and whether one model beats another."""

from typing import Any

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._noise.streams import NoiseSource
from torch_holdout._shared.checks import require_text
from torch_holdout._shared.tracebacks import without_frames
from torch_holdout.holdout.challenge_results import Challenge
from torch_holdout.holdout.challenges import challenge
from torch_holdout.holdout.incumbents import Folder
from torch_holdout.holdout.registration import RegisteredHoldout
from torch_holdout.holdout.run import Run
from torch_holdout.holdout.run_access import RunAccess
from torch_holdout.holdout.runs import as_run_name, current_run
from torch_holdout.holdout.standings import ask
from torch_holdout.ledger import Ledger
from torch_holdout.mechanisms import Patience


class SealedDoor(RegisteredHoldout):
    """The questions of a sealed holdout: no value comes out before it is closed."""

    _ledger: Ledger
    _noise: NoiseSource

    def run(
        self,
        *,
        stop: Patience | None = None,
        best: str | None = None,
        name: str | None = None,
        resume: str | None = None,
    ) -> Run:
        """Return a run of a sealed holdout; its first evaluation takes one of the budget.

        Args:
            stop: What stops it. Without it the run shows nothing at all before closing.
            best: Which statistic decides what is best in it; None: that of ``stop``, or the first.
            name: What it is called in the report; None: the name of ``th.named_run``.
            resume: The ``id`` of an open run, to go on with it; its rule is the stored one.
        """
        if resume is not None:
            require_text("resume", resume)
        if name is not None:
            require_text("name", name)
        label = current_run() if name is None else as_run_name(name)
        return Run(self._access(), stop, best, label, resume)

    def winner(self, statistic: str | None = None) -> int:
        """Return the number of the ended run with the best evaluation so far; the first of equals.

        It is a symbol with a price, the logarithm of the number of runs to choose among: every
        later evaluation pays for it. Asked again with nothing new, it is the same answer, free.

        Args:
            statistic: Which statistic decides; None: the one that decides in the first run.
        """
        if statistic is not None:
            self._registration.statistic(statistic)
        return ask(self._access(), lambda standings: standings.winner(statistic))

    @without_frames  # which hold the values
    def challenge(
        self,
        statistic: str,
        values: Any,
        *,
        query: str | WeightsFingerprint,
        rule: str = "certified",
        margin: float = 0.0,
        folder: Folder = None,
    ) -> Challenge:
        """Compare a model with the incumbent, example by example, and say keep or revert.

        The first one is the incumbent. A challenge takes one of the budget's runs, and its bit is
        paid by whatever is evaluated later; its value is shown at closing, with an interval.

        Guarantee:
            Under ``rule="certified"``, with 95 % confidence no challenger of the whole account was
            kept that is not better in the population (``bounds.challenges``): by the exact sign
            test for ``ZeroOne``, by moments of the differences for other means.

        Args:
            statistic: What is compared: a ``ZeroOne``, ``BoundedMean`` or ``GroupedMean``, whose
                groups are paired.
            values: One value for each example, in any array; whole or boolean for ``ZeroOne``. Two
                models are paired by position, so the order must always be the same; on several
                ranks gather all of them, and ask on one. NaN counts as the worse bound.
            query: Text, or the weights' fingerprint. The same query is the same answer, free,
                whatever the values; of text the log says so.
            rule: ``"margin"`` keeps what is better on this holdout by more than ``margin``; it
                claims nothing for a single keep, and pays the same bits.
            margin: For ``rule="margin"``, in the statistic's units.
            folder: Where the incumbent's values are kept (0600), to pair the next ones with; None:
                next to an SQLite ledger, in memory for ``memory://``. If they are lost, the next
                challenger is the new incumbent without a test.
        """
        return challenge(
            self._access(),
            statistic,
            values,
            query=query,
            rule=rule,
            margin=margin,
            folder=folder,
        )

    def _access(self) -> RunAccess:
        account = self._attached()
        return RunAccess(self._registration, self._ledger, account, self._noise)
