"""Patience: stop a run when its best evaluation is too far back."""

from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, final

from torch_holdout._shared.checks import plain_whole, require_between, require_text, require_whole

LONGEST = 10**6


@final
@dataclass(frozen=True)
class Patience:
    """Stop a run once ``patience`` passes in a row have not improved on its best one.

    As Lightning's ``EarlyStopping``, on the clipped and quantised mean: an improvement is strict,
    and the best evaluation is the last improvement. A value that is not finite counts as the
    statistic's worse bound; ``EarlyStopping(check_finite=True)`` would stop at once instead.

    Args:
        statistic: Which of the holdout's statistics decides.
        patience: Passes without an improvement after which the run stops, 1 or more.
        min_delta: By how much a value must be better to be an improvement, in the statistic's own
            units.
        after: The first passes that take no part: they are neither counted nor the best one. For
            ``Trainer(min_epochs=...)``, which a sealed run refuses.

    Example:
        >>> Patience("val_loss", patience=10)
        Patience(statistic='val_loss', patience=10, min_delta=0.0, after=0)
        >>> Patience("val_loss", patience=10, after=5).earliest_stop
        16
    """

    statistic: str
    patience: int
    min_delta: float = 0.0
    after: int = 0

    def __post_init__(self) -> None:
        require_text("statistic", self.statistic)
        for name, smallest in (("patience", 1), ("after", 0)):
            object.__setattr__(self, name, plain_whole(getattr(self, name)))
            require_whole(name, getattr(self, name), smallest, LONGEST)
        require_between("min_delta", self.min_delta, 0, 1e300)
        object.__setattr__(self, "min_delta", float(self.min_delta))

    @property
    def earliest_stop(self) -> int:
        """The first pass at which it can stop a run."""
        return self.after + 1 + self.patience

    def identity(self) -> dict[str, Any]:
        """Return the parameters, as the ledger keeps them with a run."""
        return asdict(self)


@final
@dataclass(frozen=True)
class Reference:
    """The best pass so far of an open run. Secret: nothing of it is in a repr."""

    total: int = field(repr=False)
    evaluation: int = field(repr=False)
    passes: int = field(repr=False)


class Judgement(NamedTuple):
    """The reference after a pass, whether this pass is it, and whether the run stops. Raw."""

    reference: Reference | None
    better: bool
    stops: bool

    def __repr__(self) -> str:
        return "<sealed judgement>"


def judged(
    reference: Reference | None,
    total: int,
    *,
    evaluation: int,
    passes: int,
    mode: str,
    margin: Fraction,
    patience: Patience | None,
) -> Judgement:
    """Judge one pass of a run, in levels. Without a ``patience`` nothing stops it.

    Args:
        reference: The best pass so far.
        total: The sum of levels of the run's statistic.
        evaluation: The number of the evaluation it belongs to.
        passes: The number of this pass, from 1.
        mode: Which direction is better.
        margin: ``min_delta`` in levels of the sum.
        patience: What stops the run.

    Example:
        >>> first = judged(None, 9, evaluation=1, passes=1, mode="min", margin=Fraction(0),
        ...                patience=Patience("val_loss", 1))
        >>> first.better, first.stops
        (True, False)
        >>> judged(first.reference, 9, evaluation=2, passes=2, mode="min", margin=Fraction(0),
        ...        patience=Patience("val_loss", 1)).stops
        True
    """
    if patience is not None and passes <= patience.after:
        return Judgement(None, False, False)
    gain = 0 if reference is None else reference.total - total
    better = reference is None or (gain if mode == "min" else -gain) > margin
    # Made in either case: calls can be counted.
    here = Reference(total, evaluation, passes)
    reference = here if reference is None or better else reference
    waited = passes - reference.passes
    return Judgement(reference, better, patience is not None and waited >= patience.patience)
