"""Audit the mechanisms of the holdout: exact laws, samples and budgets, ours and twins."""

import math
from collections.abc import Callable
from fractions import Fraction

import torch

from torch_holdout._noise.fixed import laplace_numbers
from torch_holdout._noise.streams import NoiseSource
from torch_holdout.audit.evidence import Row, epsilon_row, laplace_cdf, law_row
from torch_holdout.audit.exact import Game, Step, neighbours
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
    step = 1 / (UNITS * SIGMA)
    sparse: list[tuple[str, Mechanism]] = [
        ("Thresholdout", Thresholdout(threshold=THRESHOLD, sigma=SIGMA, guess="train")),
        ("SparseVector", SparseVector(threshold=THRESHOLD, sigma=SIGMA)),
        ("EffectiveRounds", EffectiveRounds(threshold=THRESHOLD, sigma=SIGMA, rounds=5)),
        ("Ladder", Ladder(step=THRESHOLD, sigma=SIGMA)),
    ]
    rows = [
        Row(name, "exact", "a round and its answer", 2 * step, _round_loss(mechanism))
        for name, mechanism in sparse
    ]
    laplace = Game(LaplaceMechanism(epsilon=0.5), (Step((1, 2)),), grid=UNITS, guess=None)
    rows.append(Row("LaplaceMechanism", "exact", "an answer", 0.5, laplace.loss()))
    rows.append(Row("Thresholdout", "exact", "two units values", step, _two_units_loss(int)))
    rows += [
        Row(
            fault,
            "exact",
            "a round and its answer",
            2 * step,
            _round_loss(Twin(THRESHOLD, SIGMA, fault)),
            twin=True,
        )
        for fault in FAULTS
    ]
    shared = _two_units_loss(lambda units: 0)
    rows.append(
        Row("one threshold for two units values", "exact", "two units values", step, shared, True)
    )
    return rows


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
    """Count what a door grants that is asked three times as often as its budget allows.

    Example:
        >>> [(row.subject, row.measured, row.right) for row in budget_rows()]
        [('ReusableHoldout', 5, True), ('budget off by one', 6, True)]
    """
    budget = 5
    granted = sum(_grants(budget))
    broken = sum(off_by_one(budget))
    return [
        Row("ReusableHoldout", "counted", "releases", budget, granted),
        Row("budget off by one", "counted", "releases", budget, broken, twin=True),
    ]


def _round_loss(mechanism: Mechanism) -> float:
    """Quiet questions move one way, the last one the other: the worst case of the proof."""
    guess = Fraction(1) if isinstance(mechanism, Ladder) else Fraction(0)
    games = neighbours(_QUIET, 1, 2, [(1, -1), (-1, 1)])
    return max(
        Game(mechanism, steps, units=UNITS, grid=UNITS, guess=guess).loss() for steps in games
    )


def _two_units_loss(key: Callable[[int], int]) -> float:
    """Questions about few units, each after a release of many units that the example left alone."""
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
    """Ask whether an answer has bits that only a mean of 0 leaves: n = 10,000, epsilon 0.02."""
    size, claimed = 10_000, 0.02
    finest = math.ulp(1 / size)

    def fine(value: float) -> int:
        return int(value / finest != math.floor(value / finest))

    samples = []
    for errors in (0, 1):
        if twin:
            noise = laplace_numbers((8 * draws,), seed=errors) / (size * claimed)
            answers = [float_answer(errors / size, x) for x in noise.tolist()]
        else:
            mechanism = LaplaceMechanism(epsilon=claimed)
            drawn = _released(mechanism, errors, source, draws, units=size, grid=512)
            answers = [index / 512 for index in drawn]
        samples.append([fine(value) for value in answers])
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
