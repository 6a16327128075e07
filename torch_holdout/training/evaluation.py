"""One evaluation of a guarded module: sealed sums, the weights it saw, the training value."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from torch_holdout._fingerprints.weights import WeightsFingerprint, is_sharded, weights_fingerprint
from torch_holdout._shared.distributed import share_of
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.statistics import SealedSums
from torch_holdout.training.eval_mode import require_eval

DIFF = """Return per-example values instead; the guard averages, guards and logs them:
     def validation_step(self, batch, batch_idx):
         x, y = batch
-        loss = F.cross_entropy(self(x), y)
-        self.log("val_loss", loss)
+        return {"val_loss": F.cross_entropy(self(x), y, reduction="none")}"""


class Evaluation:
    """Accumulates a pass over the holdout; nothing can be read from it but the door's answers.

    Args:
        holdout: The account.
        model: The module being evaluated.
        version: Whatever else decides the values.
        rank: This process's rank.
        world: Number of ranks the pass is sharded over.
    """

    def __init__(
        self, holdout: ReusableHoldout, model: nn.Module, *, version: str, rank: int, world: int
    ) -> None:
        self._holdout = holdout
        self._model = model
        self._version = version
        self._sums = {
            name: holdout.accumulator(name, rank=rank, world=world) for name in holdout.statistics
        }
        self._guesses: dict[str, SealedSums] = {}
        self._weights: WeightsFingerprint | None = None
        self._sharded = is_sharded(model)
        self._share = share_of(holdout.size, rank, world)

    @property
    def started(self) -> bool:
        """Whether a batch has been added."""
        return any(sums.seen for sums in self._sums.values())

    @property
    def complete(self) -> bool:
        """Whether this rank has seen its share of the examples, padding aside."""
        return all(sums.kept >= self._share for sums in self._sums.values())

    def look_when_complete(self) -> None:
        """Look once more in the last step. The ranks may have it at different moments."""
        if self.complete and not self._sharded:
            self.look_at_weights()

    def look_at_weights(self) -> None:
        """Fingerprint the weights; a second look confirms the first.

        Both are taken inside a step: weight averaging swaps the weights around the pass. Only
        sharded weights, which the ranks must look at together, are seen again after the last.
        """
        require_eval(self._model)
        seen = weights_fingerprint(self._model, self._version)
        self._weights = seen if self._weights is None else self._weights.confirmed_by(seen)

    def add(self, output: Any) -> None:
        """Add what a step returned for a batch of the holdout."""
        for name, values in self._checked(output).items():
            self._sums[name].update(*values)

    def add_guess(self, output: Any) -> None:
        """Add what a step returned for a batch of training examples."""
        for name, values in self._checked(output).items():
            if name not in self._guesses:
                self._guesses[name] = self._holdout.accumulator(name, role="guess")
            self._guesses[name].update(*values)

    def ask(self) -> dict[str, Answer]:
        """Put the query of every statistic to the holdout."""
        if self._sharded and self._weights is not None:
            self.look_at_weights()
        query = "no step was run" if self._weights is None else self._weights
        return self._holdout.release_all(self._sums, query=query, guesses=self._guesses)

    def _checked(self, output: Any) -> dict[str, tuple[Any, ...]]:
        expected = set(self._sums)
        if not isinstance(output, Mapping):
            raise InvalidArgumentError(
                f"Expected the step to return a dictionary with {sorted(expected)}, but got "
                f"{type(output).__name__}. {DIFF}"
            )
        if set(output) != expected:
            missing = sorted(expected - set(output))
            unknown = sorted(map(str, set(output) - expected))
            raise InvalidArgumentError(
                f"Expected the step to return the registered statistics {sorted(expected)}, but "
                f"missing are {missing} and not registered are {unknown}. Return exactly those, or "
                f"register the others when the holdout is made."
            )
        return {k: v if isinstance(v, tuple) else (v,) for k, v in output.items()}
