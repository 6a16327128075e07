"""Checks of arguments; each error names what was expected and what was given."""

import math
from numbers import Integral, Real
from typing import TypeGuard

from torch_holdout.errors import InvalidArgumentError


def is_finite(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number that a float can hold, and not a bool.

    Example:
        >>> is_finite(0.5), is_finite(True), is_finite(float("nan")), is_finite(10**400)
        (True, False, False, False)
    """
    try:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:
        return False


def require_number(name: str, value: object) -> None:
    """Raise unless ``value`` is a finite number."""
    if not is_finite(value):
        raise InvalidArgumentError(
            f"Expected `{name}` to be a finite number, but got {_shown(value)}."
        )


def require_between(
    name: str, value: object, low: float, high: float, *, ends: bool = True
) -> None:
    """Raise unless ``value`` is in a range; ``ends``, also infinite ones, may belong to it."""
    usable = not isinstance(value, bool) and isinstance(value, Real) and value == value
    if usable and (low <= value <= high if ends else low < value < high):  # type: ignore[operator]
        return
    if math.isinf(high):
        expected = f"{low:g} or more" if ends else f"above {low:g}"
    else:
        expected = f"from {low:g} to {high:g}" if ends else f"between {low:g} and {high:g}"
    raise InvalidArgumentError(
        f"Expected `{name}` to be a number {expected}, but got {_shown(value)}."
    )


def require_positive(**values: float) -> None:
    """Raise unless every value, given by its name, is a finite number above 0."""
    for name, value in values.items():
        require_between(name, value, 0, math.inf, ends=False)


def require_units(value: object) -> None:
    """Raise unless ``value`` can be the number of independent units of a mean."""
    require_whole("units", value, 1, 2**62)


def require_failure(value: object, smallest: float = 0.0) -> None:
    """Raise unless ``value`` is a probability of failing that is at least ``smallest``."""
    require_between("failure", value, 0, 1, ends=False)
    if is_finite(value) and value < smallest:
        raise InvalidArgumentError(
            f"Expected `failure` to be at least {smallest:g}, but got {_shown(value)}."
        )


def require_tolerance(value: object, largest: float = 1.0) -> None:
    """Raise unless ``value`` is a distance between means in [0, 1]."""
    if not is_finite(value) or not 0 < value <= largest:
        raise InvalidArgumentError(
            f"Expected `tolerance` to be a number above 0 and at most {largest:.4g}, but got "
            f"{_shown(value)}."
        )


def plain_whole(value: object) -> object:
    """Return any kind of whole number as Python's own, which cannot overflow; others as they are.

    Example:
        >>> plain_whole(True), plain_whole(2.0), plain_whole(7)
        (True, 2.0, 7)
    """
    return value if isinstance(value, bool) or not isinstance(value, Integral) else int(value)


def require_whole(name: str, value: object, smallest: int, largest: int) -> None:
    """Raise unless ``value`` is a whole number in a range."""
    whole = not isinstance(value, bool) and isinstance(value, Integral)
    # Numbers of fewer than 64 bits would overflow in what is computed from them.
    wide = whole and getattr(value, "itemsize", 8) >= 8
    if not wide or not smallest <= int(value) <= largest:  # type: ignore[call-overload]
        raise InvalidArgumentError(
            f"Expected `{name}` to be a whole number from {smallest} to {largest}, but got "
            f"{_shown(value)}."
        )


def require_text(name: str, value: object) -> None:
    """Raise unless ``value`` can be a name."""
    usable = isinstance(value, str) and value.strip() and len(value) <= 200
    if not usable or not str(value).isprintable():
        raise InvalidArgumentError(
            f"Expected `{name}` to be printable text of 1 to 200 characters, but got "
            f"{_shown(value)}."
        )


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        expected = " or ".join(map(repr, choices))
        raise InvalidArgumentError(f"Expected `{name}` to be {expected}, but got {_shown(value)}.")


def require_instance(name: str, value: object, expected: type) -> None:
    """Raise unless ``value`` is of a type."""
    if not isinstance(value, expected):
        raise InvalidArgumentError(
            f"Expected `{name}` to be of type {expected.__name__}, but got {type(value).__name__}."
        )


def _shown(value: object) -> str:
    """Show a user's own argument, shortened."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a number beyond 10^30"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
