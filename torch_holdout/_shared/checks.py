"""Checks of arguments; each error names what was expected and what was given."""

import math
from numbers import Integral, Real
from types import UnionType
from typing import Any, TypeGuard, TypeVar, cast, get_args

from torch_holdout.errors import InvalidArgumentError

_BEYOND = 2**1024  # no float is as large
_Value = TypeVar("_Value")


def is_finite(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number that a float can hold, and not a bool.

    Example:
        >>> is_finite(0.5), is_finite(True), is_finite(float("nan")), is_finite(10**400)
        (True, False, False, False)
    """
    number = _as_float(value)
    return number is not None and math.isfinite(number)


def require_number(name: str, value: object) -> None:
    """Raise unless ``value`` is a finite number."""
    if not is_finite(value):
        raise InvalidArgumentError(
            f"Expected `{name}` to be a finite number, but got {shown(value)}."
        )


def require_between(
    name: str, value: object, low: float, high: float, *, ends: bool = True
) -> None:
    """Raise unless ``value`` is in a range; ``ends``, also infinite ones, may belong to it."""
    number = _as_float(value)
    if number is not None and (low <= number <= high if ends else low < number < high):
        return
    if math.isinf(high):
        expected = f"{low:g} or more" if ends else f"above {low:g}"
    else:
        expected = f"from {low:g} to {high:g}" if ends else f"between {low:g} and {high:g}"
    raise InvalidArgumentError(
        f"Expected `{name}` to be a number {expected}, but got {shown(value)}."
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
            f"Expected `failure` to be at least {smallest:g}, but got {shown(value)}."
        )


def require_tolerance(value: object, largest: float = 1.0) -> None:
    """Raise unless ``value`` is a distance between means in [0, 1]."""
    if not is_finite(value) or not 0 < value <= largest:
        raise InvalidArgumentError(
            f"Expected `tolerance` to be a number above 0 and at most {largest:.4g}, but got "
            f"{shown(value)}."
        )


def plain_whole(value: _Value) -> _Value:
    """Return any kind of whole number as Python's own, which cannot overflow; others as they are.

    Example:
        >>> plain_whole(True), plain_whole(2.0), plain_whole(7)
        (True, 2.0, 7)
    """
    whole = _as_int(value)
    return value if whole is None else cast(_Value, whole)


def require_whole(name: str, value: object, smallest: int, largest: int) -> None:
    """Raise unless ``value`` is a whole number in a range."""
    whole = _as_int(value)
    # Numbers of fewer than 64 bits would overflow in what is computed from them.
    wide = getattr(value, "itemsize", 8) >= 8
    if whole is None or not wide or not smallest <= whole <= largest:
        raise InvalidArgumentError(
            f"Expected `{name}` to be a whole number from {smallest} to {largest}, but got "
            f"{shown(value)}."
        )


def require_text(name: str, value: object) -> None:
    """Raise unless ``value`` can be a name."""
    usable = isinstance(value, str) and value.strip() and len(value) <= 200
    if not usable or not str(value).isprintable():
        raise InvalidArgumentError(
            f"Expected `{name}` to be printable text of 1 to 200 characters, but got "
            f"{shown(value)}."
        )


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        expected = " or ".join(map(repr, choices))
        raise InvalidArgumentError(f"Expected `{name}` to be {expected}, but got {shown(value)}.")


def require_instance(name: str, value: object, expected: type | UnionType) -> None:
    """Raise unless ``value`` is of a type, or of one of several."""
    if not isinstance(value, expected):
        kinds = [expected] if isinstance(expected, type) else get_args(expected)
        names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise InvalidArgumentError(
            f"Expected `{name}` to be of type {names}, but got {type(value).__name__}."
        )


def require_flag(name: str, value: object) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise InvalidArgumentError(
            f"Expected `{name}` to be True or False, but got {shown(value)}."
        )


def require_callable(name: str, value: object) -> None:
    """Raise unless ``value`` can be called."""
    if not callable(value):
        raise InvalidArgumentError(
            f"Expected `{name}` to be a function, but got {type(value).__name__}."
        )


def require_length(name: str, value: object) -> int:
    """Return the length of a dataset; raise unless it has one that can be."""
    try:
        return len(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        pass
    raise InvalidArgumentError(
        f"Expected `{name}` to have a length, but got {type(value).__name__} without."
    )


def plain_number(value: Any) -> Any:
    """Return any kind of real number as Python's own; others as they are.

    Fractions and numpy's numbers overflow, or warn, where Python's do not.

    Example:
        >>> from fractions import Fraction
        >>> plain_number(Fraction(1, 4)), plain_number(10**400), plain_number("x")
        (0.25, inf, 'x')
    """
    if type(value) in (float, bool) or not isinstance(value, Real):
        return value
    whole = _as_int(value)
    if whole is not None and abs(whole) < _BEYOND:
        return whole
    number = _as_float(value)
    return number if number is not None else _infinite(value)


def _infinite(value: Any) -> Any:
    """Return the infinity that a number beyond all floats is nearest to."""
    try:
        return math.copysign(math.inf, value > 0 or -1)
    except (TypeError, ValueError):  # numpy calls a span of time a number
        return value


def _as_float(value: object) -> float | None:
    """Return a real number that a float can hold, as one."""
    if type(value) is float:  # by far the most; the others ask an abstract class
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


def _as_int(value: object) -> int | None:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def shown(value: object) -> str:
    """Show a user's own argument, shortened; of what may hold data, only the type."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a number beyond 10^30"
    if hasattr(type(value), "__array__") and getattr(value, "shape", ()) != ():
        return f"a {type(value).__name__}"
    try:
        text = ascii(value)
    except Exception:  # its own method, or a number too long to be written
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
