"""Which mechanism suits early stopping: the same curves replayed through each of them.

Every model of a curve is a query. The user keeps the model with the best *released* value; when
the budget is spent the choice stands. Three numbers matter: the regret (how much worse the chosen
model is on fresh data than the best), the gap (what was reported for it minus fresh data; below
zero is too optimistic) and the certificate (what can be claimed of the reported value).
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import torch_holdout as th
from torch_holdout._shared.checks import require_whole
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import Mechanism

from experiments.curves import TASKS, Curve, Task, noise_search, training_curves

BUDGET = 20
Family = Literal["raw", "train", "last", "ladder", "laplace", "gauss"]


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to answer a curve's queries; without a mechanism the raw values are published.

    Attributes:
        name: Short, for the table.
        family: What kind it is, for colours.
        mechanism: How queries are answered.
        budget: Releases.
        guesses_count: Whether a returned guess may become the incumbent, which biases it.
    """

    name: str
    family: Family
    mechanism: Mechanism | None
    budget: int
    guesses_count: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one replay came to.

    Attributes:
        chosen: Index of the chosen model.
        reported: The value published for it.
        released: Indices of the models whose value was released.
        regret: Its loss on fresh data minus the best model's.
        gap: What was reported for it minus its loss on fresh data.
        certificate: Half-width for the released values; infinite if nothing can be claimed.
    """

    chosen: int
    reported: float
    released: tuple[int, ...]
    regret: float
    gap: float
    certificate: float


@final
@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its standard error (0 for a single seed).

    Example:
        >>> Estimate.of([0.01, 0.03])
        Estimate(mean=0.02, error=0.01)
    """

    mean: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Average; infinite values make an infinite mean."""
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return cls(statistics.fmean(values), 0.0)
        error = statistics.stdev(values) / math.sqrt(len(values))
        return cls(round(statistics.fmean(values), 12), round(error, 12))


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a contender on the curves of one data set and loss."""

    data: str
    loss: str
    contender: str
    family: Family
    guesses_count: bool
    releases: Estimate
    regret: Estimate
    gap: Estimate
    certificate: Estimate

    @property
    def certified(self) -> bool:
        """Whether something can be claimed of what was reported: never of a returned guess."""
        return not self.guesses_count and self.certificate.mean < 1


def contenders(size: int, queries: int) -> list[Contender]:
    """Return the mechanisms to compare, with parameters matched to the holdout.

    With u = 1/(2 sqrt(size)), the largest standard error of a mean: thresholds of u/2, u and 4u, a
    Ladder's step of u/2, noise with standard deviation u/8 and u, the same for both laws. A
    threshold T has noise of scale T/(6 ln(2 queries)), which rarely decides a comparison.

    Example:
        >>> [c.name for c in contenders(500, 200)][:3]
        ['raw', 'Thr(train) T=u/2', 'Thr(last) T=u/2']
    """
    require_whole("size", size, 1, 2**40)
    require_whole("queries", queries, 1, 10**9)
    unit = 1 / (2 * math.sqrt(size))
    noise = 1 / (6 * math.log(2 * queries))
    found = [Contender(name="raw", family="raw", mechanism=None, budget=queries)]
    for label, share in (("u/2", 0.5), ("u", 1.0), ("4u", 4.0)):
        found += _thresholdouts(label, share * unit, noise)
    for label, sigma in (("", 0.0), (" +noise", unit / 2 * noise)):
        ladder = th.Ladder(step=unit / 2, sigma=sigma)
        found.append(_limited(f"Ladder u/2{label}", "ladder", ladder))
    for label, share in (("u/8", 1 / 8), ("u", 1.0)):
        found += _answering_all(label, share * unit, size, queries)
    return found


def replay(curve: Curve, contender: Contender, *, seed: int) -> Outcome:
    """Ask for every model of a curve in turn; keep the best value that may be kept.

    Example:
        >>> from experiments.curves import noise_search
        >>> curve = noise_search(seed=0, configurations=5)
        >>> found = replay(curve, contenders(curve.size, 5)[0], seed=1)
        >>> found.reported == float(curve.raw.min()), found.certificate
        (True, inf)
    """
    answers, certificate = _answers(curve, contender, seed)
    usable = [a for a in answers if contender.guesses_count or a.kind == "release"]
    # Who was never told anything keeps the last model.
    best = min(usable or answers[-1:], key=lambda answer: answer.value)
    truth = curve.truth
    fresh = float(truth[best.model])
    return Outcome(
        chosen=best.model,
        reported=best.value,
        released=tuple(a.model for a in answers if a.kind == "release"),
        regret=fresh - float(truth.min()),
        gap=best.value - fresh,
        certificate=certificate,
    )


def compare(
    curves: Sequence[Curve],
    *,
    progress: Callable[[str], None] | None = None,
    only: Iterable[str] | None = None,
) -> list[Row]:
    """Replay every contender on the curves of one data set and loss, one curve per seed.

    Args:
        curves: Curves that differ by their seed alone.
        progress: Told what is being done.
        only: Names of the contenders to replay; None: all.

    Example:
        >>> from experiments.curves import noise_search
        >>> curves = [noise_search(seed=s, configurations=4) for s in range(2)]
        >>> [row.releases.mean for row in compare(curves, only=["raw", "Gauss s=u"])]
        [4.0, 4.0]
    """
    first = _alike(curves)
    wanted = None if only is None else set(only)
    rows = []
    for contender in contenders(first.size, first.queries):
        if wanted is not None and contender.name not in wanted:
            continue
        if progress is not None:
            progress(f"{first.data} {first.loss}: {contender.name}")
        outcomes = [replay(curve, contender, seed=seed) for seed, curve in enumerate(curves)]
        rows.append(_row(first, contender, outcomes))
    return rows


def experiment(
    *,
    seeds: int = 5,
    epochs: int = 200,
    configurations: int = 200,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Train, search and replay everything; data sets whose package is missing are left out.

    Example:
        >>> rows = experiment(seeds=1, epochs=2, configurations=2)
        >>> {row.data for row in rows} >= {"digits", "noise labels"}
        True
    """
    require_whole("seeds", seeds, 1, 1000)
    tell = progress or (lambda _: None)
    rows: list[Row] = []
    for task in TASKS:
        if task.problem is not None:
            tell(task.problem)
            continue
        for curves in _trained(task, seeds, epochs, tell):
            rows += compare(curves, progress=tell)
    tell("searching on noise labels")
    searches = [noise_search(seed=s, configurations=configurations) for s in range(seeds)]
    return rows + compare(searches, progress=tell)


def table(rows: Sequence[Row], title: str = "") -> Any:
    """Return a table for the terminal; all columns but the first are means over seeds.

    Example:
        >>> from experiments.curves import noise_search
        >>> table(compare([noise_search(seed=0, configurations=2)], only=["raw"])).row_count
        1
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    # Narrow enough for 80 columns.
    made = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    made.add_column("mechanism", no_wrap=True)
    for name in ("releases", "regret", "gap", "certified"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(
            row.contender,
            f"{row.releases.mean:.0f}",
            f"{row.regret.mean:.3f}±{row.regret.error:.3f}",
            f"{row.gap.mean:+.3f}±{row.gap.error:.3f}",
            f"± {row.certificate.mean:.3f}" if row.certified else "none",
        )
    return made


def groups(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the rows by data set and loss, in their order.

    Example:
        >>> groups([])
        {}
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.data, row.loss), []).append(row)
    return found


@final
@dataclass(frozen=True)
class _Published:
    model: int
    value: float
    kind: str


def _thresholdouts(label: str, threshold: float, noise: float) -> list[Contender]:
    # A threshold of 1 or more is none: tiny holdouts have to do with less.
    threshold = min(threshold, 0.5)
    made = []
    rules: tuple[Literal["train", "last"], ...] = ("train", "last")
    for rule in rules:
        mechanism = th.Thresholdout(threshold=threshold, sigma=threshold * noise, guess=rule)
        made.append(_limited(f"Thr({rule}) T={label}", rule, mechanism))
    if label == "4u":
        mechanism = th.Thresholdout(threshold=threshold, sigma=threshold * noise, guess="train")
        made.append(_limited(f"Thr(train) T={label} +guesses", "train", mechanism, True))
    return made


def _limited(
    name: str, family: Family, mechanism: Mechanism, guesses_count: bool = False
) -> Contender:
    return Contender(
        name=name, family=family, mechanism=mechanism, budget=BUDGET, guesses_count=guesses_count
    )


def _answering_all(label: str, deviation: float, size: int, queries: int) -> list[Contender]:
    # A Laplace variable of scale b has standard deviation b sqrt(2).
    laplace = th.LaplaceMechanism(epsilon=math.sqrt(2) / (size * deviation))
    gauss = th.GaussianMechanism(sigma=deviation)
    return [
        Contender(name=f"Laplace s={label}", family="laplace", mechanism=laplace, budget=queries),
        Contender(name=f"Gauss s={label}", family="gauss", mechanism=gauss, budget=queries),
    ]


def _answers(curve: Curve, contender: Contender, seed: int) -> tuple[list[_Published], float]:
    if contender.mechanism is None:
        raw = curve.raw.tolist()
        return [_Published(model, value, "release") for model, value in enumerate(raw)], math.inf
    holdout = th.ReusableHoldout(
        "memory://",
        name=f"{curve.data} {curve.loss}",
        size=curve.size,
        statistics={"loss": th.BoundedMean(0.0, 1.0)},
        mechanism=contender.mechanism,
        budget=contender.budget,
        seed=seed,
    )
    found = []
    train = curve.train.tolist() if contender.mechanism.wants_guess() else None
    for model, losses in enumerate(curve.holdout):
        sums = holdout.accumulator("loss")
        sums.update(losses)
        guess = None if train is None else train[model]
        answer = holdout.release("loss", sums, query=f"model {model}", guess=guess)
        if answer.kind == "exhausted":
            break
        found.append(_Published(model, answer.value, answer.kind))
    return found, holdout.certificate().tolerance


def _alike(curves: Sequence[Curve]) -> Curve:
    kinds = {(c.data, c.loss, c.size, c.queries) for c in curves}
    if len(kinds) != 1:
        raise InvalidArgumentError(
            f"Expected `curves` of one data set, loss, size and length, but got {len(kinds)} kinds."
        )
    return curves[0]


def _trained(task: Task, seeds: int, epochs: int, tell: Callable[[str], None]) -> list[list[Curve]]:
    trained = []
    for seed in range(seeds):
        tell(f"{task.name}: training, seed {seed + 1} of {seeds}")
        trained.append(training_curves(task, seed=seed, epochs=epochs))
    return [list(curves) for curves in zip(*trained, strict=True)]


def _row(curve: Curve, contender: Contender, outcomes: Sequence[Outcome]) -> Row:
    return Row(
        data=curve.data,
        loss=curve.loss,
        contender=contender.name,
        family=contender.family,
        guesses_count=contender.guesses_count,
        releases=Estimate.of([float(len(o.released)) for o in outcomes]),
        regret=Estimate.of([o.regret for o in outcomes]),
        gap=Estimate.of([o.gap for o in outcomes]),
        certificate=Estimate.of([o.certificate for o in outcomes]),
    )
