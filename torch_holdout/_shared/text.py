"""Numbers as text: a count with its noun, a bound rounded to the side on which it still holds."""

import math

WEAK = 0.1  # a normalised tolerance above which a certificate is called weak ...
USELESS = 0.5  # ... and one above which it says nothing: around the middle it covers everything
LARGE_EPSILON = 10  # an epsilon above which no record is protected


def up(value: float, digits: int = 3) -> str:
    """Format an upper bound with a few digits, rounded up.

    Example:
        >>> up(0.16641), up(2.0), up(1234.5), up(0.0491, digits=2), up(math.inf)
        ('0.167', '2', '1240', '0.05', 'infinite')
    """
    if not 0 < value < math.inf:
        return "infinite" if value == math.inf else f"{value:g}"
    places = digits - 1 - math.floor(math.log10(value))
    return f"{-floor(-value, places):.{digits + 4}g}"


def outwards(low: float, high: float, digits: int = 4) -> str:
    """Format an interval, its ends rounded away from each other.

    Example:
        >>> outwards(0.77638, 0.97662), outwards(-3.0, 12345.6), outwards(0.0, 0.0)
        ('[0.7763, 0.9767]', '[-10, 12350]', '[0, 0]')
    """
    largest = max(abs(low), abs(high))
    places = digits - 1 - math.floor(math.log10(largest)) if largest else 0
    below, above = floor(low, places) + 0.0, -floor(-high, places) + 0.0  # no -0
    return f"[{below:.{digits + 4}g}, {above:.{digits + 4}g}]"


def floor(value: float, places: int) -> float:
    """Round down to a number of decimals, which may be negative; what is on it stays.

    Example:
        >>> floor(0.8567, 3), floor(-0.8567, 3), floor(1234.0, -2), floor(0.3, 1)
        (0.856, -0.857, 1200.0, 0.3)
    """
    scale = 10.0**places
    nearest = round(value, places)
    on_it = math.isclose(nearest, value, rel_tol=1e-12, abs_tol=1e-12 / scale)
    return nearest if on_it else math.floor(value * scale) / scale


def counted(number: int, noun: str) -> str:
    """Format a count with its noun.

    Example:
        >>> counted(1, "release"), counted(1200, "guess"), counted(0, "query")
        ('1 release', '1,200 guesses', '0 queries')
    """
    if noun.endswith("y"):
        plural = f"{noun[:-1]}ies"
    else:
        plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def confidence_text(failure: float) -> str:
    """Format a confidence in per cent without rounding it up to certainty.

    Example:
        >>> from fractions import Fraction
        >>> confidence_text(0.05), confidence_text(1e-30), confidence_text(Fraction(1, 4))
        ('95 %', 'more than 99.99999999 %', '75 %')
    """
    text = f"{100 * (1 - float(failure)):.10g}"
    return "more than 99.99999999 %" if text == "100" else f"{text} %"
