"""Audits of the library: claimed privacy against measured, for its mechanisms and broken twins.

Three kinds of evidence. *Exact*: a mechanism's own code is run over every noise it can draw on
small neighbouring holdouts, and the largest loss is compared with the claim. *Sampled*: answers are
drawn from the operating system's noise, and a lower confidence bound on epsilon (Clopper-Pearson),
or the distance to the exact law (Dvoretzky-Kiefer-Wolfowitz), is compared with what is allowed.
*Counted*: releases against the budget. Every kind has broken twins that it must catch. Nothing
here answers a query.
"""

from collections.abc import Callable
from typing import Any

from torch_holdout._noise.streams import NoiseSource, SeededNoise, SystemNoise
from torch_holdout._shared.checks import require_callable, require_failure, require_whole
from torch_holdout._shared.moved import old_name
from torch_holdout.audit import holdouts, neighbours, predictions, private_runs
from torch_holdout.audit.evidence import Row, epsilon_lower_bound

__all__ = ["Row", "audit", "epsilon_lower_bound"]

_MOVED = {
    "budget_rows": holdouts.__name__,
    "exact_rows": holdouts.__name__,
    "prediction_rows": predictions.__name__,
    "sampled_rows": holdouts.__name__,
}


def audit(
    *,
    draws: int = 20_000,
    failure: float = 1e-6,
    seed: int | None = None,
    progress: Callable[[str], None] = lambda subject: None,
) -> list[Row]:
    """Audit every mechanism and every twin.

    Args:
        draws: Answers drawn for each sampled row and holdout.
        failure: Probability that a sampled row flags a mechanism that is right, for all together.
        seed: Reproducible noise, for tests; None for the operating system's.
        progress: Called with what is being audited.

    Example:
        >>> rows = audit(draws=300, seed=1)  # so few draws find some twins only
        >>> any(row.flagged for row in rows if not row.twin)
        False
    """
    require_whole("draws", draws, 2, 10**8)
    require_failure(failure)
    require_callable("progress", progress)
    if seed is not None:
        require_whole("seed", seed, -(2**63), 2**63)
    source: NoiseSource = SystemNoise() if seed is None else SeededNoise(seed)
    rows = []
    for name, part in (
        ("exact laws", holdouts.exact_rows),
        ("samples", lambda: holdouts.sampled_rows(source, draws, failure)),
        # Half of the rows of samples are twins, which need none of the rate: half of it is left.
        ("private runs", lambda: private_runs.run_rows(source, draws, failure / 4)),
        ("predictions", lambda: predictions.prediction_rows(source, draws, failure / 8)),
        ("nearest records", lambda: neighbours.neighbour_rows(source, draws, failure / 8)),
        ("budgets", holdouts.budget_rows),
    ):
        progress(name)
        rows += part()
    return rows


def __getattr__(name: str) -> Any:
    return old_name(__name__, name, _MOVED)
