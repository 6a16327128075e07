"""The few pieces of SVG the figures are made of. All text is escaped here."""

import math
from html import escape


def element(tag: str, content: str = "", **attributes: str | float) -> str:
    """Write an element; ``content`` is markup already, attributes are not.

    Example:
        >>> element("line", x1=0, y2=1.23456, class_="axis")
        '<line x1="0" y2="1.23" class="axis"/>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


def text(content: str, x: float, y: float, **attributes: str | float) -> str:
    """Write a label."""
    return element("text", escape(content), x=x, y=y, **attributes)


def titled(content: str, title: str) -> str:
    """Group something under a tooltip."""
    return element("g", element("title", escape(title)) + content)


def picture(content: str, width: float, height: float, label: str, **attributes: str) -> str:
    """Write a figure that scales to its place and says in words what it shows."""
    return element(
        "svg",
        content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_attribute(width)} {_attribute(height)}",
        role="img",
        aria_label=label,
        **attributes,
    )


def circle(x: float, y: float, radius: float) -> str:
    """Draw a release."""
    return element("circle", cx=x, cy=y, r=radius, class_="release")


def diamond(x: float, y: float, radius: float) -> str:
    """Draw a guess."""
    x, y, r = round(x, 2), round(y, 2), round(radius, 2)
    return element("path", d=f"M{x} {y - r:g}l{r} {r}l-{r} {r}l-{r} -{r}z", class_="guess")


def cross(x: float, y: float, radius: float) -> str:
    """Draw a stale value."""
    x, y, r = round(x, 2), round(y, 2), round(radius, 2)
    d = f"M{x - r:g} {y - r:g}l{2 * r:g} {2 * r:g}m0 -{2 * r:g}l-{2 * r:g} {2 * r:g}"
    return element("path", d=d, class_="stale")


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return the few round numbers within a range.

    Example:
        >>> ticks(0.03, 0.97, 5)
        [0.2, 0.4, 0.6, 0.8]
    """
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10, 20) if m * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _attribute(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{round(value, 2):g}"
