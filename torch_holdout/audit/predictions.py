"""Audits of the prediction mechanisms and of their twins, enumerated and sampled."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.laplace import DEVICE_BITS
from torch_holdout._noise.streams import NoiseSource
from torch_holdout.accounting import compose
from torch_holdout.audit.evidence import (
    Row,
    ScriptedNoise,
    epsilon_lower_bound,
    epsilon_row,
    laplace_cdf,
    law_row,
)
from torch_holdout.prediction.mechanisms import (
    NO_CONSENSUS,
    ConfidentGNMax,
    GNMax,
    NoisyMean,
    PermuteAndFlip,
    PredictionMechanism,
    Setting,
    SoftMajority,
    StableERM,
)
from torch_holdout.prediction.stable.model import fit_stable_model
from torch_holdout.prediction.stable.problem import StableProblem

PARTS, CLASSES = 6, 3
_RIGHT = 10  # sampled rows of ours, which share the false-alarm rate
_TIMES = 3  # a law whose noise is 10 % too small must stand out every time
_ALL = 2**DEVICE_BITS
_SOFT_TWIN, _FLIP_TWIN = "weights exp(epsilon * votes)", "coins exp(epsilon * votes)"


def prediction_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Audit every prediction mechanism and its twins; see ``audit``.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> rows = prediction_rows(SeededNoise(1), draws=300, failure=1e-6)
        >>> any(row.flagged for row in rows if not row.twin)
        False
    """
    share = failure / _RIGHT
    return [
        *exact_predictions(),
        *_label_rows(source, _TIMES * draws, share),
        *_refund_rows(source, draws, share),
        *_mean_rows(source, draws, share),
        *_stable_rows(source, draws, share),
    ]


def exact_predictions() -> list[Row]:
    """Compare the exact loss over all neighbouring votes with the claim.

    Example:
        >>> [row.subject for row in exact_predictions() if row.twin]
        ['weights exp(epsilon * votes)', 'coins exp(epsilon * votes)']
    """
    setting = Setting(num_parts=PARTS, num_outputs=CLASSES)
    soft, flip = SoftMajority(eta=0.3), PermuteAndFlip(epsilon=0.6)
    claimed = flip.charge(setting).epsilon
    soft_twin, flip_twin = SoftMajority(eta=0.6), PermuteAndFlip(epsilon=1.2)
    return [
        _label_row("SoftMajority", soft.charge(setting).epsilon, _soft_law(soft)),
        _label_row("PermuteAndFlip", claimed, _flip_law(flip)),
        _label_row(_SOFT_TWIN, 2 * soft.eta, _soft_law(soft_twin), twin=True),
        _label_row(_FLIP_TWIN, claimed, _flip_law(flip_twin), twin=True),
    ]


def _label_row(subject: str, claimed: float, law: Tensor, *, twin: bool = False) -> Row:
    return Row(subject, "exact", "a label", claimed, _largest_loss(law), twin)


def _votes() -> Tensor:
    every = itertools.product(range(PARTS + 1), repeat=CLASSES)
    return torch.tensor([votes for votes in every if sum(votes) == PARTS])


def _largest_loss(law: Tensor) -> float:
    """Return the largest logarithm of a ratio between the laws of neighbouring votes."""
    votes = _votes()
    apart = (votes.unsqueeze(0) - votes.unsqueeze(1)).abs().sum(dim=-1) == 2
    logs = law.log()
    losses = (logs.unsqueeze(0) - logs.unsqueeze(1)).abs().amax(dim=-1)
    return float(losses[apart].max())


def _scripted_answers(mechanism: PredictionMechanism, *batches: Tensor) -> Tensor:
    setting = Setting(num_parts=PARTS, num_outputs=CLASSES)
    return mechanism.answer(_votes(), setting, cast(Uniforms, ScriptedNoise(batches)))


def _soft_law(mechanism: SoftMajority) -> Tensor:
    """Return the law of the labels: each label has one run of the 2^63 numbers."""
    law = torch.zeros(len(_votes()), CLASSES, dtype=torch.float64)
    start = torch.zeros(len(_votes()), 1, dtype=torch.int64)
    for _ in range(CLASSES):
        label = _scripted_answers(mechanism, start)
        end = _last(partial(_same_label, mechanism, label), start)
        law.scatter_add_(1, label.unsqueeze(1), (end - start + 1).to(torch.float64) / _ALL)
        start = end + (end < _ALL - 1)
    return law / law.sum(dim=1, keepdim=True)


def _same_label(mechanism: SoftMajority, label: Tensor, at: Tensor) -> Tensor:
    return _scripted_answers(mechanism, at) == label


def _flip_law(mechanism: PermuteAndFlip) -> Tensor:
    """Return the law of the labels, over every order of the classes and outcome of the coins."""
    heads = torch.stack([_heads(mechanism, label) for label in range(CLASSES)], dim=1)
    law = torch.zeros_like(heads)
    for places, coins in _scripts():
        chance = torch.where(coins == 0, heads, 1 - heads).prod(dim=1, keepdim=True)
        label = _scripted_answers(mechanism, places, coins).unsqueeze(1)
        law.scatter_add_(1, label, chance / math.factorial(CLASSES))
    return law


def _heads(mechanism: PermuteAndFlip, label: int) -> Tensor:
    """Return the share of the 2^63 numbers for which a label that is tried first is taken."""
    first = torch.arange(CLASSES) == label
    places = torch.where(first, 0, 1 + torch.arange(CLASSES)).expand(len(_votes()), -1)

    def taken(at: Tensor) -> Tensor:
        return _scripted_answers(mechanism, places, torch.where(first, at, _ALL - 1)) == label

    end = _last(taken, torch.zeros(len(_votes()), 1, dtype=torch.int64))
    return (end.squeeze(1).to(torch.float64) + 1).div(_ALL)


def _last(holds: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Return the last number from ``start`` for which a falling condition holds, row by row."""
    low, high = start, torch.full_like(start, _ALL - 1)
    low = torch.where(holds(high).unsqueeze(1), high, low)
    for _ in range(DEVICE_BITS):
        middle = low + (high - low) // 2
        held = holds(middle).unsqueeze(1)
        low, high = torch.where(held, middle, low), torch.where(held, high, middle)
    return low


def _scripts() -> Iterator[tuple[Tensor, Tensor]]:
    rows = len(_votes())
    for order in itertools.permutations(range(CLASSES)):
        for coins in itertools.product((0, _ALL - 1), repeat=CLASSES):
            yield torch.tensor(order).expand(rows, -1), torch.tensor(coins).expand(rows, -1)


def _label_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Compare labels of votes 7 to 3 with their law; with two classes it has a closed form."""
    eta, epsilon, sigma, check, threshold = 0.2, 0.4, 4.0, 2.0, 8.0
    soft = [1 / (1 + math.exp(-4 * eta))]
    flip = [1 - math.exp(-2 * epsilon) / 2]
    noisy = _normal(4 / (math.sqrt(2) * sigma))
    quiet = _normal((threshold - 7) / check)
    clear = [quiet, quiet + (1 - quiet) * noisy]
    cases: list[tuple[str, PredictionMechanism, list[float], bool]] = [
        ("SoftMajority", SoftMajority(eta=eta), soft, False),
        (_SOFT_TWIN, SoftMajority(eta=2 * eta), soft, True),
        ("PermuteAndFlip", PermuteAndFlip(epsilon=epsilon), flip, False),
        (_FLIP_TWIN, PermuteAndFlip(epsilon=2 * epsilon), flip, True),
        ("GNMax", GNMax(sigma=sigma), [noisy], False),
        ("Gaussian votes, noise 10 % too small", GNMax(sigma=0.9 * sigma), [noisy], True),
        ("ConfidentGNMax", _confident(threshold, check, sigma), clear, False),
        ("half of the check's noise", _confident(threshold, check / 2, sigma), clear, True),
    ]
    rows = []
    for subject, mechanism, law, twin in cases:
        first = NO_CONSENSUS if len(law) > 1 else 0
        drawn = _answers_to(mechanism, [7, 3], 10, source, draws) - first
        rows.append(law_row(subject, drawn, law, failure, twin=twin))
    return rows


def _refund_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Measure how much abstentions alone give away."""
    delta = 1e-3
    mechanism = _confident(10.0, 3.0, 2.0)
    charge = mechanism.charge(Setting(num_parts=10, num_outputs=2))
    samples = [
        (_answers_to(mechanism, votes, 10, source, draws) == NO_CONSENSUS).long().tolist()
        for votes in ([10, 0], [9, 1])
    ]
    measured = epsilon_lower_bound(samples[0], samples[1], failure, delta=delta)
    what, claimed = "epsilon of abstaining", compose([charge], delta).epsilon
    return [
        Row("ConfidentGNMax", "sampled", what, claimed, measured),
        Row("abstentions refunded", "sampled", what, 0.0, measured, twin=True),
    ]


def _mean_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Compare noisy means of 25 members of two levels, whose sum is 25 of 50."""
    epsilon, sigma = 0.5, 0.12
    rows = []
    laplace = [laplace_cdf(k - 25, 2 / epsilon) for k in range(50)]
    gaussian = [_normal((k + 0.5 - 25) / (50 * sigma)) for k in range(50)]
    for share, twin in ((1.0, False), (0.9, True)):
        for noise, law in (("laplace", laplace), ("gaussian", gaussian)):
            mechanism = _mean(noise, epsilon / share, sigma * share)
            drawn = _answers_to(mechanism, 25, 25, source, _TIMES * draws)
            subject = f"{noise} mean, noise 10 % too small" if twin else f"NoisyMean, {noise}"
            rows.append(law_row(subject, drawn, law, failure, twin=twin))
    for share, twin in ((1.0, False), (0.5, True)):
        for simplex, votes in ((False, (25, 27)), (True, ([25, 25], [23, 27]))):
            mechanism = _mean("laplace", epsilon / share, sigma, simplex=simplex)
            samples = [
                _summary(_answers_to(mechanism, table, 25, source, draws)) for table in votes
            ]
            kind = "vectors" if simplex else "values"
            subject = f"half of the noise of {kind}" if twin else f"NoisyMean, {kind}"
            rows.append(epsilon_row(subject, samples, epsilon, failure, twin=twin))
    return rows


def _stable_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Train on two neighbouring sets whose models are as far apart as can be, and ask both."""
    epsilon, setting, rows = 0.5, Setting(num_parts=1, num_outputs=1), []
    problem = StableProblem(size=4, regularisation=0.5, loss="huber")
    x = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
    models = [fit_stable_model((x, y * x[:, 0]), problem) for y in (10.0, -10.0)]
    for share, twin in ((1.0, False), (0.5, True)):
        mechanism = StableERM(problem=problem, epsilon=epsilon / share, answers="values")
        samples = []
        for place, model in enumerate(models):
            one = mechanism.table(next(model.output_chunks(x[:1])))
            uniforms = source.uniforms("audit", "stable", share, place)
            drawn = mechanism.answer(one.expand(draws, -1), setting, uniforms)
            samples.append((drawn[:, 0] * 8 / problem.stability).round().long().tolist())
        subject = "half of the noise of scores" if twin else "StableERM"
        rows.append(epsilon_row(subject, samples, epsilon, failure, twin=twin))
    return rows


def _confident(threshold: float, check: float, answer: float) -> ConfidentGNMax:
    return ConfidentGNMax(threshold=threshold, sigma_check=check, sigma_answer=answer)


def _mean(noise: str, epsilon: float, sigma: float, *, simplex: bool = False) -> NoisyMean:
    if noise == "gaussian":
        return NoisyMean(low=0, high=1, noise="gaussian", sigma=sigma, resolution=2)
    return NoisyMean(low=0, high=1, noise="laplace", epsilon=epsilon, simplex=simplex, resolution=2)


def _summary(drawn: Tensor) -> list[int]:
    """Return one integer for each answer: the value, or how far both entries moved from 25."""
    one = drawn if drawn.dim() == 1 else torch.minimum(25 - drawn[:, 0], drawn[:, 1] - 25)
    values: list[int] = one.tolist()
    return values


def _answers_to(
    mechanism: PredictionMechanism,
    table: Sequence[int] | int,
    parts: int,
    source: NoiseSource,
    draws: int,
) -> Tensor:
    """Draw answers to one table: labels, or levels of the sum."""
    one = torch.tensor(table)
    setting = Setting(num_parts=parts, num_outputs=one.numel())
    uniforms = source.uniforms("audit", repr(mechanism), str(table))
    drawn = mechanism.answer(one.expand(draws, *one.shape).contiguous(), setting, uniforms)
    return drawn if mechanism.answers == "labels" else (drawn * 2 * parts).round().long()


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
