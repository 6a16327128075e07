"""What a guard does with a holdout that answers with values: publish them, and meet the budget."""

from typing import Any, final

import torch

from torch_holdout.errors import BudgetExhaustedError
from torch_holdout.training.evaluation import Evaluation
from torch_holdout.training.guarding import Guarding
from torch_holdout.training.publishing import publish, stop_if_spent
from torch_holdout.training.requirements import budget_spent, require_releases_left


@final
class LiveCourse:
    """The course of a guard's runs where every pass gets answers."""

    outcome = None  # there is no sealed run
    best_model_path = None

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def state(self) -> dict[str, Any]:
        """Return the last published values. Never the budget: the ledger does not rewind."""
        return {"last": dict(self._last)}

    def load(self, guard: Guarding, state: dict[str, Any]) -> None:
        """Take over the last published values of the run that is resumed."""
        self._last = {
            name: float(value)
            for name, value in state.get("last", {}).items()
            if name in guard.holdout.statistics
        }

    def set_up(self, guard: Guarding, trainer: Any, *, fits: bool) -> None:
        """Check that passes are answered with values, and that a fit has releases."""
        guard.holdout.require_values()
        if fits:
            require_releases_left(guard.holdout)
        self._last = {}  # a resumed run gets its own back from the checkpoint, after this

    def fit_starts(self, guard: Guarding, trainer: Any) -> None:
        """Ask nothing before training starts."""

    def training_starts(self, guard: Guarding, trainer: Any) -> None:
        """Show a resumed run its last values. Not through ``log``: a stale one would win."""
        for name, value in self._last.items():
            trainer.callback_metrics[name] = torch.tensor(value)

    def confirmed(self, module: Any) -> None:
        """Keep no weights: ModelCheckpoint does."""

    def finish(self, guard: Guarding, trainer: Any, evaluation: Evaluation) -> None:
        """Ask the holdout, and publish its answers."""
        answers = guard.answers = evaluation.ask()
        refused = [name for name, answer in answers.items() if answer.kind == "exhausted"]
        if refused:
            self._meet_exhaustion(guard, refused)
        self._last |= {n: answer.value for n, answer in answers.items() if n not in refused}
        publish(
            trainer,
            guard._joined(),
            guard.holdout,
            answers,
            self._last,
            prog_bar=guard.prog_bar,
        )
        if guard.on_exhausted == "stop":
            stop_if_spent(trainer, guard.holdout, answers)

    def training_ends(self, guard: Guarding, trainer: Any, module: Any) -> None:
        """Nothing is open."""

    def broken_off(self, guard: Guarding, trainer: Any) -> None:
        """Nothing is open."""

    def leave(self) -> None:
        """Keep nothing."""

    def _meet_exhaustion(self, guard: Guarding, refused: list[str]) -> None:
        problem = budget_spent(guard.holdout)
        if guard.on_exhausted == "raise":
            raise BudgetExhaustedError(
                f"{problem}; {refused} got no answer. Stop and report, or use a fresh holdout."
            )
        guard._warn_once(f"{problem}; {refused} repeat the run's last answers, which are stale")
