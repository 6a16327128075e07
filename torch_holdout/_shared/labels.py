"""Labels of groups, one for each example, as numbers from 0 on."""

from collections.abc import Mapping, Set
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_holdout._shared.checks import shown
from torch_holdout._shared.text import counted
from torch_holdout.errors import InvalidArgumentError

Labels = NDArray[np.int64]  # for each example the number of its group
_MOST = 10**8  # labels that are listed in memory


def numbered_labels(
    groups: Any, size: int | None = None, *, otherwise: str = ""
) -> tuple[Labels, dict[Any, int]]:
    """Number the groups as they first appear; return each example's number, and each label's.

    ``size`` is how many there must be, ``otherwise`` what else the argument may be.

    Example:
        >>> numbers, known = numbered_labels(["b", "a", "b"])
        >>> numbers.tolist(), known
        ([0, 1, 0], {'b': 0, 'a': 1})
    """
    if size is None and _has_more(groups, _MOST):
        raise InvalidArgumentError(
            f"Expected at most {_MOST:,} labels in `groups`, one for each example, but got more."
        )
    labels = listed_labels(groups, None if size is None else size + 1)
    if labels is None:
        raise InvalidArgumentError(
            f"Expected `groups` to be a sequence with one label for each example{otherwise}, but "
            f"got {shown(groups) if isinstance(groups, str) else type(groups).__name__}."
        )
    if size is not None and len(labels) != size:
        got = counted(len(labels), "label") if len(labels) < size else "more"
        raise InvalidArgumentError(
            f"Expected `groups` to have one label for each of {counted(size, 'example')}, but got "
            f"{got}."
        )
    numbers: dict[Any, int] = {}
    try:
        missing = any(label is None or bool(label != label) for label in labels)  # NaN, NaT
        numbered = [numbers.setdefault(label, len(numbers)) for label in labels]
    except (TypeError, ValueError, RuntimeError):  # lists, arrays, pandas' NA
        missing, numbered = True, []
    if missing:
        raise InvalidArgumentError(
            "Expected every label in `groups` to be one number or text, but some are missing (None "
            "or NaN) or hold several values. Give an example without a group a label of its own."
        )
    return np.array(numbered, dtype=np.int64), numbers


def _has_more(groups: Any, most: int) -> bool:
    try:
        return len(groups) > most
    except OverflowError:  # a range
        return True
    except (TypeError, ValueError, RuntimeError):
        return False


def listed_labels(labels: Any, most: int | None = None) -> list[Any] | None:
    """Return the first labels of a sequence; None if it has no order or cannot be listed.

    Example:
        >>> listed_labels(np.array([3, 4, 5]), most=2), listed_labels("text")
        ([3, 4], None)
    """
    if isinstance(labels, str | bytes | Mapping | Set):
        return None
    try:
        listed = islice(labels.tolist() if hasattr(labels, "tolist") else labels, most)
        # Tensors of one number are all different labels otherwise.
        return [label.item() if getattr(label, "shape", None) == () else label for label in listed]
    except (TypeError, ValueError, RuntimeError):  # one number, a sparse tensor
        return None
