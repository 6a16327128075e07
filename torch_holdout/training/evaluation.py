"""One evaluation of a guarded module: sealed sums, the weights it saw, the training value."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from torch_holdout._fingerprints.weights import WeightsFingerprint, is_sharded, weights_fingerprint
from torch_holdout._shared.distributed import share_of
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.passes import Passed
from torch_holdout.holdout.protocol import Accumulator, Door
from torch_holdout.holdout.queries import require_eval
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.run import Run
from torch_holdout.statistics import SealedSums
from torch_holdout.training.advice import diff_for
from torch_holdout.training.loaders import HoldoutLoader


class Evaluation:
    """A pass over the holdout; only the door's answers can be read from it.

    ``version`` names whatever decides the values besides the model; ``loader`` tells how many
    examples a batch has; ``confirmed`` is called with the model where its weights are looked at for
    the second time, so that it sees those that were evaluated; ``step`` names the code that makes
    the values.
    """

    def __init__(
        self,
        holdout: Door,
        model: nn.Module,
        *,
        version: str,
        rank: int,
        world: int,
        loader: HoldoutLoader | None = None,
        confirmed: Callable[[nn.Module], None] | None = None,
        step: str = "validation_step",
    ) -> None:
        self._holdout = holdout
        self._model = model
        self._version = version
        self._loader = loader
        self._confirmed = confirmed
        self._step = step
        self._batches = 0
        self._sums = {
            name: holdout.accumulator(name, rank=rank, world=world) for name in holdout.asked_for
        }
        self._guesses: dict[str, Accumulator] = {}
        self._weights: WeightsFingerprint | None = None
        self._sharded = is_sharded(model)
        self._share = share_of(holdout.size, rank, world)

    @property
    def started(self) -> bool:
        """Whether a batch has been added."""
        return any(sums._seen for sums in self._sums.values())

    def look_when_complete(self) -> None:
        """Look once more in the last step. The ranks may have it at different moments."""
        complete = all(sums._seen >= self._share for sums in self._sums.values())
        if complete and not self._sharded:
            self.look_at_weights()

    def look_at_weights(self) -> None:
        """Fingerprint the weights; a second look confirms the first.

        Both are taken inside a step: weight averaging swaps the weights around the pass. Only
        sharded weights, which the ranks must look at together, are seen again after the last.
        """
        require_eval(self._model)
        seen = weights_fingerprint(self._model, self._version)
        if self._weights is None:
            self._weights = seen
            return
        self._weights = self._weights.confirmed_by(seen)
        if self._confirmed is not None:
            self._confirmed(self._model)

    def rows(self) -> range | None:
        """Return how many examples the next batch may have; None if the loader does not tell."""
        return None if self._loader is None else self._loader.rows(self._batches)

    def add(self, output: Any) -> None:
        """Add a step's output for a batch of the holdout."""
        for name, values in self._checked(output).items():
            sums = self._sums[name]
            before = sums._seen
            sums.update(*values)
            if self._loader is not None:
                self._loader.require_values(name, sums._seen - before, self._batches)
                if sums.goes_by_place:
                    self._loader.require_places(name)
        self._batches += 1

    def add_guess(self, output: Any) -> None:
        """Add a step's output for a batch of training examples."""
        for name, values in self._checked(output).items():
            if name not in self._guesses:
                self._guesses[name] = self._holdout.accumulator(name, role="guess")
            self._guesses[name].update(*values)

    def ask(self) -> dict[str, Answer]:
        """Ask the holdout for every statistic."""
        query = self._query()
        return self._holdout.release_all(self._sums, query=query, guesses=self._guesses)

    def passed(self, run: Run, step: str) -> Passed:
        """Make a pass of a sealed run, with every statistic."""
        return run._passed(self._sealed_sums(), self._query(), step)

    def recall(self, run: Run) -> None:
        """Raise unless a sealed run has evaluated these weights."""
        run._recall(self._sealed_sums(), self._query())

    def _sealed_sums(self) -> dict[str, SealedSums]:
        # What is kept until closing is kept in this process.
        return {n: sums for n, sums in self._sums.items() if isinstance(sums, SealedSums)}

    def _query(self) -> str | WeightsFingerprint:
        if self._sharded and self._weights is not None:
            self.look_at_weights()
        return "no step was run" if self._weights is None else self._weights

    def _checked(self, output: Any) -> dict[str, tuple[Any, ...]]:
        expected = set(self._sums)
        if not isinstance(output, Mapping):
            raise InvalidArgumentError(
                f"Expected the step to return a dictionary with {sorted(expected)}, but got "
                f"{type(output).__name__}. {diff_for(self._step)}"
            )
        if set(output) != expected:
            missing = sorted(expected - set(output))
            unknown = sorted(map(str, set(output) - expected))
            wrong = [f"without {missing}"] * bool(missing) + [f"with {unknown}"] * bool(unknown)
            raise InvalidArgumentError(
                f"Expected the step to return the registered statistics {sorted(expected)}, but "
                f"they came {' and '.join(wrong)}. Return exactly the registered ones, or make the "
                f"holdout with the others too."
            )
        return {k: v if isinstance(v, tuple) else (v,) for k, v in output.items()}
