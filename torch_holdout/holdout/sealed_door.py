"""What a sealed holdout is asked: runs, and which of them is best."""

from torch_holdout._noise.streams import NoiseSource
from torch_holdout._shared.checks import require_text
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

    def _access(self) -> RunAccess:
        account = self._attached()
        return RunAccess(self._registration, self._ledger, account, self._noise)
