"""Audits of the holdout's mechanisms and of their twins: exact laws, samples and budgets."""

import math
from collections.abc import Callable
from fractions import Fraction

import torch

from torch_holdout._noise.fixed import laplace_numbers
from torch_holdout._noise.streams import NoiseSource
from torch_holdout.audit.evidence import Row, epsilon_row, laplace_cdf, law_row
from torch_holdout.audit.exact import Game, Step
from torch_holdout.audit.twins import FAULTS, Twin, float_answer, off_by_one
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.mechanisms import (
    EffectiveRounds,
    GaussianMechanism,
    Ladder,
    LaplaceMechanism,
    Mechanism,
    Query,
    SparseVector,
    Thresholdout,
)
from torch_holdout.statistics import ZeroOne

UNITS, SIGMA, THRESHOLD = 3, 0.35 / 3, 1 / 3
_QUIET = 30  # questions that do not fire: what a redrawn threshold leaks with
_SAMPLED = 8  # sampled rows that share the false-alarm rate; half are twins, which need none
_TIMES = 3  # a law whose noise is 10 % too small must stand out every time


def exact_rows() -> list[Row]:
    """Compare the exact loss of small games with the claim.

    Example:
        >>> all(row.right for row in exact_rows())
        True
    """
    step, two = 1 / (UNITS * SIGMA), "two units values"
    laplace = Game(LaplaceMechanism(epsilon=0.5), (Step((1, 2)),), grid=UNITS, guess=None)
    shared = _two_units_loss(lambda units: 0)
    return [
        _round_row("Thresholdout", Thresholdout(threshold=THRESHOLD, sigma=SIGMA, guess="train")),
        _round_row("SparseVector", SparseVector(threshold=THRESHOLD, sigma=SIGMA)),
        _round_row("EffectiveRounds", EffectiveRounds(threshold=THRESHOLD, sigma=SIGMA, rounds=5)),
        _round_row("Ladder", Ladder(step=THRESHOLD, sigma=SIGMA)),
        Row("LaplaceMechanism", "exact", "an answer", 0.5, laplace.loss()),
        Row("Thresholdout", "exact", two, step, _two_units_loss(int)),
        *(_round_row(fault, Twin(THRESHOLD, SIGMA, fault), twin=True) for fault in FAULTS),
        Row("one threshold for two units values", "exact", two, step, shared, twin=True),
    ]


def _round_row(subject: str, mechanism: Mechanism, *, twin: bool = False) -> Row:
    claimed = 2 / (UNITS * SIGMA)
    return Row(subject, "exact", "a round and its answer", claimed, _round_loss(mechanism), twin)


def sampled_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Compare samples with the claim; all rows together flag by chance with ``failure``.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> rows = sampled_rows(SeededNoise(1), draws=300, failure=1e-6)
        >>> sorted({row.what for row in rows})
        ['distance to the law', 'epsilon of the last bits', 'epsilon, at least']
    """
    share = failure / _SAMPLED
    epsilon, sigma = 0.5, 0.12
    laplace = [laplace_cdf(k - 25, 1 / epsilon) for k in range(50)]
    gaussian = [_gaussian_cdf(k - 25) for k in range(50)]
    rows = []
    for subject, size, twin in (
        ("LaplaceMechanism", 1.0, False),
        ("half of the answer noise", 0.5, True),
    ):
        answering = LaplaceMechanism(epsilon=epsilon / size)
        samples = [_released(answering, total, source, draws) for total in (25, 26)]
        rows.append(epsilon_row(subject, samples, epsilon, share, twin=twin))
    cases: list[tuple[str, Mechanism, list[float], bool]] = [
        ("LaplaceMechanism", LaplaceMechanism(epsilon=epsilon), laplace, False),
        ("answer noise 10 % too small", LaplaceMechanism(epsilon=epsilon / 0.9), laplace, True),
        ("GaussianMechanism", GaussianMechanism(sigma=sigma), gaussian, False),
        ("Gaussian noise 10 % too small", GaussianMechanism(sigma=0.9 * sigma), gaussian, True),
    ]
    for subject, mechanism, law, twin in cases:
        # Clipping to [0, 50] leaves the law as it is in between.
        answers = _released(mechanism, 25, source, _TIMES * draws)
        rows.append(law_row(subject, torch.tensor(answers), law, share, twin=twin))
    return [
        *rows,
        _precision_row("LaplaceMechanism", source, draws, share),
        _precision_row("floating-point noise", source, draws, share, twin=True),
    ]


def budget_rows() -> list[Row]:
    """Count the releases of a door that is asked three times as often as its budget allows.

    Example:
        >>> [(row.subject, row.measured, row.right) for row in budget_rows()]
        [('ReusableHoldout', 5, True), ('budget off by one', 6, True)]
    """
    budget = 5
    granted, broken = sum(_grants(budget)), sum(off_by_one(budget))
    return [
        Row("ReusableHoldout", "counted", "releases", budget, granted),
        Row("budget off by one", "counted", "releases", budget, broken, twin=True),
    ]


def _round_loss(mechanism: Mechanism) -> float:
    """Quiet questions move one way, the last one the other: the worst case of the proof."""
    guess = Fraction(1) if isinstance(mechanism, Ladder) else Fraction(0)
    games = [(*[Step((1, 1 + move))] * _QUIET, Step((2, 2 - move))) for move in (1, -1)]
    return max(
        Game(mechanism, steps, units=UNITS, grid=UNITS, guess=guess).loss() for steps in games
    )


def _two_units_loss(key: Callable[[int], int]) -> float:
    """Ask about few units, each after a release of many units that the example left alone."""
    mechanism = SparseVector(threshold=THRESHOLD, sigma=SIGMA)
    steps = tuple([Step((1, 2), resets=1000)] * _QUIET)
    game = Game(mechanism, steps, units=UNITS, grid=UNITS, guess=Fraction(0), key=key)
    laws = game.law(0), game.law(1)
    # Only the quiet outcome: its comparisons cost a, and nothing was answered.
    return abs(math.log(laws[0][None] / laws[1][None]))


def _released(
    mechanism: Mechanism,
    total: int,
    source: NoiseSource,
    draws: int,
    units: int = 50,
    grid: int = 50,
) -> list[int]:
    answers = []
    for number in range(draws):
        decision = mechanism.decide(
            Query(
                total=total,
                units=units,
                resolution=1,
                grid=grid,
                guess=None,
                threshold=None,
                forced=True,
                noise=source.stream("audit", units, total, number),
            )
        )
        answers.append(-1 if decision.index is None else decision.index)
    return answers


def _gaussian_cdf(k: int) -> float:
    weights = [math.exp(-(j**2) / (2 * 6.0**2)) for j in range(-80, 81)]
    return math.fsum(weights[: k + 81]) / math.fsum(weights)


def _precision_row(
    subject: str, source: NoiseSource, draws: int, failure: float, *, twin: bool = False
) -> Row:
    """Measure whether an answer has bits that only a mean of 0 leaves."""
    size, claimed = 10_000, 0.02
    finest = math.ulp(1 / size)

    def fine(value: float) -> int:
        return int(value / finest != math.floor(value / finest))

    def answers(errors: int) -> list[float]:
        if twin:
            noise = laplace_numbers((8 * draws,), seed=errors) / (size * claimed)
            return [float_answer(errors / size, x) for x in noise.tolist()]
        mechanism = LaplaceMechanism(epsilon=claimed)
        drawn = _released(mechanism, errors, source, draws, units=size, grid=512)
        return [index / 512 for index in drawn]

    samples = [[fine(value) for value in answers(errors)] for errors in (0, 1)]
    what = "epsilon of the last bits"
    return epsilon_row(subject, samples, claimed, failure, twin=twin, what=what)


def _grants(budget: int) -> list[bool]:
    holdout = ReusableHoldout(
        "memory://",
        name="audit",
        size=4,
        statistics={"value": ZeroOne()},
        mechanism=Thresholdout(threshold=0.1, sigma=0.01, guess="last"),
        budget=budget,
    )
    granted = []
    for number in range(3 * budget):
        sums = holdout.accumulator("value")
        sums.update(torch.arange(4) < 4 * (number % 2))
        granted.append(holdout.release("value", sums, query=str(number)).kind == "release")
    return granted
