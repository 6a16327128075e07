"""One line for one question: the values of a whole pass in, an answer out."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, cast, overload

import numpy as np
from torch import Tensor

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.checks import require_instance
from torch_holdout._shared.distributed import rank_and_world
from torch_holdout._shared.tracebacks import without_frames
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.checks import Role
from torch_holdout.holdout.filling import filled, filled_one, on_every_rank
from torch_holdout.holdout.queries import Named, named_query, require_query
from torch_holdout.holdout.registration import RegisteredHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.mechanisms.sealed import values_are_sealed
from torch_holdout.statistics import SealedSums


class Asking(RegisteredHoldout):
    """Questions about values that are there already, from whatever framework."""

    def accumulator(
        self, name: str, *, role: Role = "holdout", rank: int = 0, world: int = 1
    ) -> SealedSums:
        """Return an empty sealed sum for one statistic."""
        raise NotImplementedError

    def release_all(
        self,
        sums: Mapping[str, SealedSums],
        *,
        query: str | WeightsFingerprint,
        guesses: Mapping[str, float | SealedSums] | None = None,
        fresh: bool = False,
    ) -> dict[str, Answer]:
        """Answer one query for several statistics."""
        raise NotImplementedError

    @overload
    def ask(
        self, name: str, values: Any, *, query: Named, guess: Any = None, fresh: bool = False
    ) -> Answer: ...

    @overload
    def ask(
        self, name: Mapping[str, Any], *, query: Named, guess: Any = None, fresh: bool = False
    ) -> dict[str, Answer]: ...

    @without_frames  # which hold the values
    def ask(
        self,
        name: str | Mapping[str, Any],
        values: Any = None,
        *,
        query: Named,
        guess: Any = None,
        fresh: bool = False,
    ) -> Answer | dict[str, Answer]:
        """Answer one query from the values of the whole holdout; see ``release``.

        In a process group every rank must ask: with its share of the examples, as a
        ``DistributedSampler`` deals them, or with all of them.

        Args:
            name: The statistic; or ``{name: values}`` for several, each answered by name.
            values: One value for each example: a tensor, a NumPy array, a list, anything with
                ``__array__`` or ``__dlpack__``; a tuple of such for a statistic that takes several
                arguments, e.g. ``(scores, target)``.
            query: Text, a weights fingerprint, a torch module in eval mode, or ``th.digest(model)``
                for any other model. The same query is the same answer, free, whatever the values.
            guess: For a mechanism that compares with the caller's value: a number, or the values of
                training examples; with several statistics ``{name: guess}``.
            fresh: Ask again although the answer is known: a forced release.

        Example:
            >>> import numpy as np, torch_holdout as th
            >>> holdout = th.ReusableHoldout(
            ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
            ...     mechanism=th.Ladder(step=0.01), budget=2)
            >>> predictions, labels = np.array([1, 0, 2, 2]), np.array([1, 0, 2, 1])
            >>> holdout.ask("val_acc", predictions == labels, query="forest of 100 trees")
            Answer(value=0.75, kind='release', budget_left=1, source='release')
        """
        if not self.mechanism.shows_values:
            raise values_are_sealed()
        several = _by_name(name, values)
        guesses = _by_name(name, guess) if guess is not None and isinstance(name, str) else guess
        sums, given = on_every_rank(lambda: self._filled(several, guesses, query))
        answers = self.release_all(sums, query=named_query(query), guesses=given, fresh=fresh)
        return answers[name] if isinstance(name, str) else answers

    def _filled(
        self, values: Mapping[str, Any], guesses: Mapping[str, Any] | None, query: Named
    ) -> tuple[dict[str, SealedSums], dict[str, float | SealedSums]]:
        require_query(query)
        for name in values:
            self._registration.statistic(name)
        rank, world = rank_and_world()
        sums = filled(values, lambda name: self.accumulator(name, rank=rank, world=world))
        require_instance("guess", guesses or {}, Mapping)
        # As elsewhere, no rank drops padding of a guess.
        given = {name: self._guess(name, guess) for name, guess in (guesses or {}).items()}
        return sums, given

    def _guess(self, name: str, guess: Any) -> float | SealedSums:
        if isinstance(guess, Tensor | np.ndarray | np.generic) and guess.ndim == 0:
            guess = guess.item()
        if isinstance(guess, Real):
            return cast(float, guess)
        return filled_one(guess, lambda: self.accumulator(name, role="guess"))


def _by_name(name: str | Mapping[str, Any], values: Any) -> Mapping[str, Any]:
    """Return values by the names of their statistics."""
    if isinstance(name, str) and values is not None:
        return {name: values}
    if not isinstance(name, Mapping) or not name or values is not None:
        raise InvalidArgumentError(
            "Expected a statistic's name and its values, ask(name, values, query=...), or several "
            "by name, ask({name: values}, query=...), but got something else. Nothing was charged."
        )
    return name
