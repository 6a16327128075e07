"""Private multiplicative weights (Hardt and Rothblum 2010) over a finite public universe."""

import math
from typing import NoReturn, final

import torch
from torch import Tensor, nn

from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout._shared.checks import require_between
from torch_holdout.bounds.certificate import Certificate
from torch_holdout.errors import InvalidArgumentError, SealedValueError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer, Status
from torch_holdout.mechanisms import SparseVector
from torch_holdout.statistics import BoundedMean

_NAME = "query"


@final
class MultiplicativeWeights:
    r"""Answer many queries about a histogram from a public hypothesis that learns from releases.

    A query gives every element of the universe a value in [0, 1]; its answer is the mean over the
    holdout's examples. The hypothesis, a distribution over the universe that starts uniform, is
    asked first. While the holdout agrees with it (SPARSE: threshold and noise) the hypothesis's own
    answer is returned, free. Otherwise the noisy answer is released and the hypothesis is moved
    towards it by a factor :math:`e^{\eta\,q(x)}`. With :math:`\eta = 4e`, e the error that was
    found, its divergence from the histogram falls by at least :math:`2e^2` (Hoeffding's lemma), so
    except for noise, at most :math:`\ln|X|/(2T^2)` releases teach it all the threshold can tell.

    Guarantee:
        That of ``SparseVector``: :math:`2/(n\sigma)` per release, replacing one example; updates
        use released answers only, so the hypothesis is public. The universe must be public and
        fixed; the histogram is the holdout and is never shown.

    Args:
        url: Where the ledger is.
        name: The account's name.
        histogram: How many examples each element of the universe has: whole numbers, shape [X].
        threshold: T, normalised: how far the hypothesis may be off.
        sigma: Scale of the answer noise, normalised.
        updates: The budget: how many answers may be released.
        learning_rate: A fixed size of eta; None: four times the error that was found.
        delta: At which delta epsilon is stated.
        seed: Reproducible noise, for tests and experiments only.

    Example:
        >>> import torch
        >>> people = MultiplicativeWeights(
        ...     "memory://", name="ages", histogram=torch.tensor([70, 20, 10]), threshold=0.1,
        ...     sigma=0.0, updates=5)
        >>> people.ask(torch.tensor([1.0, 0.0, 0.0])).kind
        'release'
        >>> people.ask(torch.tensor([0.4, 0.3, 0.3])).kind
        'guess'
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        histogram: Tensor,
        threshold: float,
        sigma: float,
        updates: int,
        learning_rate: float | None = None,
        delta: float | None = None,
        seed: int | None = None,
    ) -> None:
        self._counts, size = _checked_histogram(histogram)
        self._holdout = ReusableHoldout(
            url,
            name=name,
            size=size,
            statistics={_NAME: BoundedMean(0.0, 1.0)},
            mechanism=SparseVector(threshold=threshold, sigma=sigma),
            budget=updates,
            delta=delta,
            seed=seed,
        )
        if learning_rate is not None:
            require_between("learning_rate", learning_rate, 0, 1)
        self._rate = learning_rate
        width = torch.float32 if self._counts.device.type == "mps" else torch.float64
        self._log_weights = torch.zeros(len(self._counts), dtype=width, device=self._counts.device)

    @property
    def hypothesis(self) -> Tensor:
        """The public distribution over the universe: made of released answers only."""
        return self._log_weights.softmax(0)

    @torch.no_grad()
    def ask(self, query: Tensor) -> Answer:
        """Answer one query: a tensor over the universe with values in [0, 1].

        The same query is the same answer, free. Without budget the answer is exhausted, and the
        hypothesis (``estimate``) is no longer compared with anything.
        """
        query = self._checked(query)
        sums = self._holdout.accumulator(_NAME)
        sums.update_counted(query, self._counts, self._holdout.size)
        guess = self.estimate(query)
        asked = weights_fingerprint(_Asked(query))
        answer = self._holdout.release(_NAME, sums, query=asked, guess=guess)
        if answer.kind == "release":
            self._learn(query, answer.value - guess)
        return answer

    @torch.no_grad()
    def estimate(self, query: Tensor) -> float:
        """Return the hypothesis's answer without asking the holdout; free and uncertified."""
        return float((self.hypothesis * self._checked(query)).sum().clamp(0, 1))

    def status(self) -> Status:
        """Return budget, counts and privacy."""
        return self._holdout.status()

    def certificate(self, failure: float = 0.05) -> Certificate:
        """Return how far answers can be from the population."""
        return self._holdout.certificate(failure)

    def __repr__(self) -> str:
        return f"MultiplicativeWeights({self._holdout!r}, universe of {len(self._counts)})"

    def __reduce__(self) -> NoReturn:
        raise SealedValueError(
            "Expected the histogram to stay here: it is the raw holdout. Make another handle with "
            "the same arguments where you need one; it shares the budget."
        )

    def _learn(self, query: Tensor, error: float) -> None:
        # A hypothesis that was too low gains where the query is high, and the other way round.
        rate = 4 * error if self._rate is None else math.copysign(self._rate, error)
        self._log_weights += rate * query

    def _checked(self, query: Tensor) -> Tensor:
        if not isinstance(query, Tensor) or query.shape != self._counts.shape:
            shape = tuple(query.shape) if isinstance(query, Tensor) else type(query).__name__
            raise InvalidArgumentError(
                f"Expected a query with one value for each of the {len(self._counts)} elements of "
                f"the universe, but got {shape}."
            )
        query = query.detach().to(self._log_weights.device, self._log_weights.dtype)
        # The query is the analyst's own: looking at it tells nothing about the holdout.
        if not bool(((query >= 0) & (query <= 1)).all()):
            raise InvalidArgumentError("Expected values of the query from 0 to 1.")
        return query


class _Asked(nn.Module):
    """A query as a module, so that its fingerprint is taken on its device."""

    def __init__(self, query: Tensor) -> None:
        super().__init__()
        self.register_buffer("query", query)


def _checked_histogram(histogram: Tensor) -> tuple[Tensor, int]:
    fits = isinstance(histogram, Tensor) and histogram.ndim == 1 and len(histogram) >= 2
    if not fits or histogram.is_floating_point() or histogram.is_complex():
        raise InvalidArgumentError(
            "Expected `histogram` to be a tensor of whole numbers, one count for each of at least "
            "two elements of the universe."
        )
    counts = histogram.detach().to(torch.int64).clone()
    size = int(counts.sum())
    if size < 1 or bool((counts < 0).any()):
        raise InvalidArgumentError("Expected counts of at least 0 and at least one example.")
    return counts, size
