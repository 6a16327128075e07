"""What a certificate assumes about the units that its statistics count."""

from collections.abc import Mapping

from torch_holdout._shared.text import counted
from torch_holdout.bounds.certificate import ASSUMPTIONS


def assumptions_about(groups: Mapping[str, int], others: int) -> tuple[str, ...]:
    """Return the assumptions, for statistics whose units are groups and ``others`` beside them.

    ``groups`` has the number of groups by statistic.

    Example:
        >>> assumptions_about({}, others=2) == ASSUMPTIONS
        True
        >>> assumptions_about({"val_loss": 60}, others=0)[0]
        'units are groups: the 60 groups of val_loss are an i.i.d. sample, ...'
    """
    if not groups:
        return ASSUMPTIONS
    each = ", ".join(f"the {counted(count, 'group')} of {name}" for name, count in groups.items())
    first = (
        f"units are groups: {each} are an i.i.d. sample, disjoint from the training data; rows of "
        f"one group may depend on each other"
    )
    if others:
        first += ", but for the other statistics all examples are such a sample"
    return (first, *ASSUMPTIONS[1:])
