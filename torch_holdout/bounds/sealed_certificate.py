"""The certificate of a sealed account: what closing will be worth, before it is closed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from torch_holdout._shared.checks import require_failure
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.brackets import hoeffding_tolerance
from torch_holdout.bounds.certificate import ASSUMPTIONS, SMALLEST_FAILURE, Certificate
from torch_holdout.bounds.ratios import Quotient, covers_ratios, zero_denominators
from torch_holdout.bounds.sealed_runs import evaluation_bracket

SEALED = "sealed runs: what was said, by its registered code, anytime"
COVERS = "the population value is the mean of the clipped statistic"
SHOWN = "values are shown at closing"
SHOWN_IF_ASKED = "values are shown by close(exact=True) only, which ends the privacy"
ERASED = "its noise protected the examples: no value was shown, and no sums are kept"


@final
class RunFacts(NamedTuple):
    """The public facts about one run: its share, its evaluations, and what others have said."""

    share: int
    evaluations: int
    others: float


@formula
def certify_sealed(
    runs: Sequence[RunFacts],
    *,
    units: Mapping[str, int],
    widths: Mapping[str, float],
    quotients: Mapping[str, Quotient] | None = None,
    resolution: int,
    budget: int,
    evaluations: int,
    failure: float,
    shown: str = SHOWN,
) -> Certificate:
    """Certify every evaluation so far; if there is none yet, those planned for the first run.

    ``quotients`` are those of the statistics that are ratios; ``shown`` says when the values can be
    seen. What runs have said never becomes less, so what others have said by now is at least what
    they had said at each evaluation.

    Example:
        >>> claim = certify_sealed(
        ...     [], units={"val_acc": 10_000}, widths={"val_acc": 1.0}, resolution=65536, budget=1,
        ...     evaluations=200, failure=0.05)
        >>> round(claim.tolerance, 4)
        0.0214
    """
    require_failure(failure, SMALLEST_FAILURE)
    asked = [run for run in runs if run.evaluations]
    bracket = max(
        evaluation_bracket(
            failure=failure,
            run=run.share,
            runs=budget,
            evaluation=run.evaluations,
            evaluations=evaluations,
            statistics=len(units),
            others=run.others,
        )
        for run in asked or [RunFacts(1, evaluations, 0.0)]
    )
    ratios = quotients or {}
    distances = {
        name: ratios[name].tolerance(bracket, own, resolution) / widths[name]
        if name in ratios
        else hoeffding_tolerance(bracket, own) + 0.5 / resolution
        for name, own in units.items()
    }
    return Certificate(
        tolerance=max(distances.values()),
        guess_tolerance=None,
        user_tolerance={name: distance * widths[name] for name, distance in distances.items()},
        user_guess_tolerance={},
        failure=float(failure),
        releases=sum(run.evaluations for run in asked),
        theorem=SEALED,
        covers=covers_ratios(f"{COVERS}; {shown}", ratios),
        assumptions=ASSUMPTIONS,
        sealed=True,
        unclaimed=zero_denominators(ratios),
    )
