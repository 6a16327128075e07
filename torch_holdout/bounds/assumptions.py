"""What a certificate assumes about the units that its statistics count."""

from collections.abc import Mapping

from torch_holdout._shared.text import counted
from torch_holdout.bounds.certificate import ASSUMPTIONS


def assumptions_about(
    groups: Mapping[str, int], others: int, batches: Mapping[str, int] | None = None
) -> tuple[str, ...]:
    """Return the assumptions, for statistics whose units are groups and ``others`` next to them.

    ``groups`` has the number of groups by statistic, ``batches`` the size of logged batches.

    Example:
        >>> assumptions_about({}, others=2) == ASSUMPTIONS
        True
        >>> assumptions_about({"val_loss": 60}, others=0)[0]
        'units are groups: the 60 groups of val_loss are an i.i.d. sample, ...'
        >>> assumptions_about({}, others=1, batches={"val_loss": 50})[-1]
        'units of val_loss are batches of 50 examples, cut in an order that does not depend ...'
    """
    logged = tuple(
        f"units of {name} are batches of {size} examples, cut in an order that does not depend on "
        f"them: the claim is about the expected clipped mean of a batch, and privacy counts per "
        f"batch"
        for name, size in (batches or {}).items()
    )
    if not groups:
        return ASSUMPTIONS + logged
    each = ", ".join(f"the {counted(count, 'group')} of {name}" for name, count in groups.items())
    first = (
        f"units are groups: {each} are an i.i.d. sample, disjoint from the training data; rows of "
        f"one group may depend on each other"
    )
    if others:
        first += ", but for the other statistics all examples are such a sample"
    return (first, *ASSUMPTIONS[1:], *logged)
