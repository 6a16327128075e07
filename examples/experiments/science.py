r"""The reusable-holdout experiment of Dwork et al., Science 349 (2015).

An analyst selects features. For every feature she compares its correlation with the label on the
training set with what the holdout answers, and keeps it if both have the same sign and exceed
:math:`1/\sqrt n`. The k kept features with the largest training correlation vote, each with its
sign, and the holdout is asked for the accuracy of the vote, for several k. Because the holdout
helped to select, its raw answers are too good: without any signal they reach
:math:`\Phi(1.525 \sqrt{k/n})` while fresh data says 50 %.

Three ways to the holdout are compared: the raw holdout, Thresholdout as its authors published it
for this experiment, and Algorithm 1 of the NIPS 2015 paper. The experiment shows behaviour. It
certifies nothing: noise is floating point, and the budgets are far beyond any useful guarantee.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import final

import torch
from torch import Tensor
from torch_holdout._noise.fixed import coin_flips, laplace_numbers, normal_numbers
from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout.errors import InvalidArgumentError

PAPER_COUNTS = (0, 10, 20, 30, 45, 70, 100, 150, 200, 250, 300, 400, 500)
SHIFTED = 20
THRESHOLD, NOISE = 4.0, 1.0  # the authors' choice, in units of 1/sqrt(n)
SIGMA = 0.25  # Algorithm 1, same units: comparison noise as wide as the authors'
CLIP = 4.0
_LARGEST = 10**6
_SEEDS = 64  # seeds set aside for one repetition of one case
_CHUNK = 500


@final
@dataclass(frozen=True, kw_only=True)
class Case:
    """The population: ``signal`` of ``features`` are shifted by 6 standard errors with the label.

    Example:
        >>> Case(size=10_000, features=10_000, signal=20).best
        0.605...
    """

    size: int
    features: int
    signal: int

    def __post_init__(self) -> None:
        require_whole("size", self.size, 2, _LARGEST)
        require_whole("features", self.features, 1, _LARGEST)
        require_whole("signal", self.signal, 0, self.features)

    @property
    def shift(self) -> float:
        """By how much a feature with signal moves with the label."""
        return 6 / math.sqrt(self.size)

    @property
    def best(self) -> float:
        """The accuracy of the vote of exactly the features with signal; no vote is better."""
        return NormalDist().cdf(math.sqrt(self.signal) * self.shift)


@final
@dataclass(frozen=True)
class Sample:
    """Feature values, one row per feature, and labels, plus or minus one per column."""

    features: Tensor
    labels: Tensor


@final
@dataclass(frozen=True)
class Answers:
    """What came back; ``exhausted`` marks training values given because nothing was left."""

    values: Tensor
    released: Tensor
    exhausted: Tensor


class Access(ABC):
    """A way to the holdout, with whatever it remembers between questions.

    Attributes:
        clip: Products of feature and label are clipped to plus or minus this, or None.
    """

    clip: float | None = None

    @abstractmethod
    def ask(self, train: Tensor, holdout: Tensor) -> Answers:
        """Answer a batch of questions, given their means on both sets."""


@final
class StandardHoldout(Access):
    """The raw holdout, asked as often as one likes.

    Example:
        >>> StandardHoldout().ask(torch.tensor([0.5]), torch.tensor([0.7])).values
        tensor([0.7000])
    """

    def ask(self, train: Tensor, holdout: Tensor) -> Answers:
        """Answer with the holdout's means."""
        always = torch.ones_like(train, dtype=torch.bool)
        return Answers(holdout, always, ~always)


@final
class PublishedThresholdout(Access):
    r"""Thresholdout as its authors published it for this experiment; it carries no guarantee.

    The training mean is returned unless the two differ by more than :math:`4/\sqrt n` plus Gaussian
    noise; then it is the holdout's mean plus Gaussian noise. The noise has standard deviation
    :math:`1/\sqrt n` both times. The threshold itself is not noisy and nothing limits how often the
    holdout answers, so no theorem covers it.

    Example:
        >>> access = PublishedThresholdout(size=10_000, seed=0)
        >>> access.ask(torch.tensor([0.0, 0.0]), torch.tensor([0.001, 0.5])).released
        tensor([False,  True])
    """

    def __init__(self, *, size: int, seed: int, threshold: float = THRESHOLD) -> None:
        self._step = 1 / math.sqrt(size)
        self._threshold = threshold * self._step
        self._seed = seed

    def ask(self, train: Tensor, holdout: Tensor) -> Answers:
        """Answer with the training means, and with noisy holdout means where they disagree."""
        self._seed += 1
        comparison, answer = NOISE * self._step * normal_numbers((2, *train.shape), self._seed)
        released = (holdout - train).abs() > self._threshold + comparison
        values = torch.where(released, holdout + answer, train)
        return Answers(values, released, torch.zeros_like(released))


@final
class AlgorithmOne(Access):
    r"""Algorithm 1 of Dwork et al., NIPS 2015: Laplace noise, a secret threshold, and a budget.

    A round draws :math:`\hat T = T + \mathrm{Lap}(2\sigma)` and keeps it until a comparison
    :math:`|h - t| + \mathrm{Lap}(4\sigma) > \hat T` fires; then :math:`h + \mathrm{Lap}(\sigma)` is
    released and a new round begins. After ``budget`` releases the holdout is never used again: the
    training mean is returned and marked as exhausted.

    Products of feature and label are clipped to [-4, 4], so replacing one holdout example moves a
    mean by at most :math:`8/n` (an accuracy by :math:`1/n`), and in exact arithmetic B releases are
    :math:`\varepsilon`-differentially private with :math:`\varepsilon = 16B/(n\sigma)`. At the size
    of the experiment that is in the hundreds: formally private, and worth nothing as a certificate.

    Example:
        >>> access = AlgorithmOne(size=10_000, seed=0, budget=1)
        >>> found = access.ask(torch.zeros(3), torch.tensor([0.001, 0.5, 0.6]))
        >>> found.released, found.exhausted, found.values[2]
        (tensor([False,  True, False]), tensor([False, False,  True]), tensor(0.))
        >>> access.epsilon
        0.64
    """

    clip = CLIP

    def __init__(
        self,
        *,
        size: int,
        seed: int,
        budget: int,
        threshold: float = THRESHOLD,
        sigma: float = SIGMA,
    ) -> None:
        require_whole("budget", budget, 1, _LARGEST)
        require_between("sigma", sigma, 0, math.inf, ends=False)
        step = 1 / math.sqrt(size)
        self._sigma = sigma * step
        self._secrets = threshold * step + 2 * self._sigma * laplace_numbers((budget,), seed)
        self._seed = seed
        self.spent = 0
        self.epsilon = 2 * budget * 2 * CLIP / (size * self._sigma)

    def ask(self, train: Tensor, holdout: Tensor) -> Answers:
        """Answer in order, one question after the other, while the budget lasts."""
        self._seed += 1
        comparison, answer = self._sigma * laplace_numbers((2, *train.shape), self._seed)
        noisy = (holdout - train).abs() + 4 * comparison
        found = fired(noisy, self._secrets[self.spent :])
        released = torch.zeros_like(train, dtype=torch.bool)
        released[found] = True
        self.spent += len(found)
        exhausted = torch.zeros_like(released)
        if self.spent == len(self._secrets):
            exhausted[found[-1] + 1 if found else 0 :] = True
        values = torch.where(released, holdout + answer.to(holdout.dtype), train)
        return Answers(values, released, exhausted)


def fired(noisy: Tensor, secrets: Tensor) -> list[int]:
    """Return which comparisons fire, when each secret threshold lasts until one does.

    Example:
        >>> fired(torch.tensor([1.0, 5.0, 3.0, 9.0]), torch.tensor([4.0, 6.0]))
        [1, 3]
    """
    found: list[int] = []
    start = 0
    for secret in secrets:
        above = (noisy[start:] > secret).nonzero()
        if not len(above):
            break
        found.append(start + int(above[0]))
        start = found[-1] + 1
    return found


MakeAccess = Callable[[Case, int], Access]

ACCESSES: Mapping[str, MakeAccess] = {
    "standard holdout": lambda case, seed: StandardHoldout(),
    "Thresholdout as published": lambda case, seed: PublishedThresholdout(
        size=case.size, seed=seed
    ),
    "Algorithm 1": lambda case, seed: AlgorithmOne(
        size=case.size, seed=seed, budget=max(1, case.features // 10)
    ),
}


@final
@dataclass(frozen=True)
class Outcome:
    """What one way to the holdout led to; repetitions are the first dimension.

    Attributes:
        train: Accuracy on the training set, by number of features.
        answered: Accuracy as the holdout answered it.
        fresh: Accuracy on fresh data.
        exhausted: Where ``answered`` is the training value because the budget was spent.
        feature_releases: How many correlations the holdout released.
        accuracy_releases: How many accuracies the holdout released.
        exhausted_features: How many correlations were asked for when the budget was spent.
    """

    train: Tensor
    answered: Tensor
    fresh: Tensor
    exhausted: Tensor
    feature_releases: Tensor
    accuracy_releases: Tensor
    exhausted_features: Tensor


@final
@dataclass(frozen=True)
class Result:
    """The outcomes of a case, by the name of the way to the holdout."""

    case: Case
    counts: tuple[int, ...]
    outcomes: dict[str, Outcome]


def counts_for(features: int) -> tuple[int, ...]:
    """Return the paper's numbers of selected features, up to a twentieth of all features.

    About a twentieth passes both tests on a raw holdout when there is no signal.

    Example:
        >>> counts_for(2000), counts_for(10_000)[-1]
        ((0, 10, 20, 30, 45, 70, 100), 500)
    """
    return tuple(count for count in PAPER_COUNTS if count <= features / 20)


def run(
    case: Case,
    *,
    repetitions: int,
    counts: Sequence[int] | None = None,
    seed: int = 0,
    accesses: Mapping[str, MakeAccess] = ACCESSES,
    progress: Callable[[], None] | None = None,
) -> Result:
    """Repeat the experiment; every way to the holdout sees the same data.

    Args:
        case: The population.
        repetitions: How often new data is drawn.
        counts: Numbers of selected features, increasing; the paper's by default.
        seed: Decides everything.
        accesses: Ways to the holdout by name; each is made anew from the case and a seed.
        progress: Called after every repetition.

    Returns:
        The outcomes by name.

    Example:
        >>> result = run(Case(size=400, features=400, signal=0), repetitions=2)
        >>> result.counts, result.outcomes["standard holdout"].fresh.shape
        ((0, 10, 20), torch.Size([2, 3]))
    """
    require_whole("repetitions", repetitions, 1, _LARGEST)
    wanted = counts_for(case.features) if counts is None else tuple(counts)
    _require_counts(wanted)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in accesses}
    for repetition in range(repetitions):
        first = _SEEDS * (2 * (seed + repetition) + (case.signal > 0))
        for name, outcome in _repetition(case, wanted, accesses, first).items():
            outcomes[name].append(outcome)
        if progress is not None:
            progress()
    return Result(case, wanted, {name: _stacked(found) for name, found in outcomes.items()})


def draw_sample(case: Case, rows: Tensor, seed: int) -> Sample:
    """Draw ``case.size`` examples, of each only the features in ``rows``; uses two seeds.

    Example:
        >>> case = Case(size=100, features=50, signal=20)
        >>> draw_sample(case, torch.arange(50), seed=0).features.shape
        torch.Size([50, 100])
    """
    labels = 2.0 * coin_flips((case.size,), seed) - 1
    features = normal_numbers((len(rows), case.size), seed + 1)
    features[rows < case.signal] += case.shift * labels
    return Sample(features, labels)


def correlations(sample: Sample, clip: float | None) -> Tensor:
    """Return the mean of feature times label per feature, of products clipped if asked for.

    Example:
        >>> sample = Sample(torch.tensor([[3.0, 1.0]]), torch.tensor([1.0, -1.0]))
        >>> correlations(sample, None), correlations(sample, 2.0)
        (tensor([1.]), tensor([0.5000]))
    """
    if clip is None:
        return sample.features @ sample.labels / len(sample.labels)
    # In chunks: the products of everything at once would double the memory.
    starts = range(0, len(sample.features), _CHUNK)
    chunks = (sample.features[start : start + _CHUNK] for start in starts)
    return torch.cat([(chunk * sample.labels).clamp_(-clip, clip).mean(1) for chunk in chunks])


def select(train: Tensor, answered: Tensor, size: int, largest: int) -> Tensor:
    r"""Return the features to use, best first.

    Kept are those whose two correlations have equal signs and exceed :math:`1/\sqrt n` in size.

    Example:
        >>> train = torch.tensor([0.2, -0.5, 0.3, 0.4])
        >>> select(train, torch.tensor([0.2, -0.2, -0.3, 0.01]), size=100, largest=10)
        tensor([1, 0])
    """
    step = 1 / math.sqrt(size)
    kept = (train * answered > 0) & (train.abs() > step) & (answered.abs() > step)
    order = torch.where(kept, train.abs(), 0).argsort(descending=True, stable=True)
    return order[: min(largest, int(kept.sum()))]


def accuracies(sample: Sample, rows: Tensor, signs: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the accuracy of the vote of the first k of ``rows`` for every k; no vote counts half.

    Example:
        >>> sample = Sample(torch.tensor([[1.0, -2.0], [3.0, 1.0]]), torch.tensor([1.0, 1.0]))
        >>> accuracies(sample, torch.tensor([0, 1]), torch.tensor([1.0, -1.0]), (0, 1, 2))
        tensor([0.5000, 0.5000, 0.0000])
    """
    score = torch.zeros_like(sample.labels)
    found = []
    before = 0
    for count in counts:
        score = score + signs[before:count] @ sample.features[rows[before:count]]
        found.append(((score * sample.labels).sign().mean() + 1) / 2)
        before = count
    return torch.stack(found)


def _repetition(
    case: Case, counts: Sequence[int], accesses: Mapping[str, MakeAccess], seed: int
) -> dict[str, Outcome]:
    everything = torch.arange(case.features)
    with ThreadPoolExecutor(2) as pool:  # a generator uses one core
        train, holdout = pool.map(lambda s: draw_sample(case, everything, s), (seed, seed + 2))
    made = {
        name: make(case, seed + 6 + 3 * place)
        for place, (name, make) in enumerate(accesses.items())
    }
    means = {
        clip: (correlations(train, clip), correlations(holdout, clip))
        for clip in {access.clip for access in made.values()}
    }
    return {
        name: _analysis(case, counts, train, holdout, means[access.clip], access, seed + 4)
        for name, access in made.items()
    }


def _analysis(
    case: Case,
    counts: Sequence[int],
    train: Sample,
    holdout: Sample,
    means: tuple[Tensor, Tensor],
    access: Access,
    seed: int,
) -> Outcome:
    asked = access.ask(*means)
    rows = select(means[0], asked.values, case.size, counts[-1])
    signs = means[0][rows].sign()
    on_train = accuracies(train, rows, signs, counts)
    answer = access.ask(on_train, accuracies(holdout, rows, signs, counts))
    # Nothing before this line saw fresh data, and features are independent: draw only these.
    fresh = draw_sample(case, rows, seed)
    return Outcome(
        train=on_train,
        answered=answer.values,
        fresh=accuracies(fresh, torch.arange(len(rows)), signs, counts),
        exhausted=answer.exhausted,
        feature_releases=asked.released.sum(),
        accuracy_releases=answer.released.sum(),
        exhausted_features=asked.exhausted.sum(),
    )


def _stacked(outcomes: list[Outcome]) -> Outcome:
    names = [field.name for field in fields(Outcome)]
    return Outcome(**{name: torch.stack([getattr(o, name) for o in outcomes]) for name in names})


def _require_counts(counts: tuple[int, ...]) -> None:
    for count in counts:
        require_whole("counts", count, 0, _LARGEST)
    if not counts or list(counts) != sorted(set(counts)):
        raise InvalidArgumentError(
            f"Expected `counts` to be increasing numbers of features, but got {counts!r}."
        )
