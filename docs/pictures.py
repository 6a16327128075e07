"""Draw a picture for light pages and for dark ones; docs/hooks/pictures.py shows the right one."""

from pathlib import Path

from matplotlib import pyplot as plt

LIGHT = {"savefig.dpi": 130}
DARK = {
    **LIGHT,
    "savefig.transparent": True,
    "legend.facecolor": "#1e2129",
    "axes.prop_cycle": plt.cycler(
        color=[
            "#6cb6ff",
            "#ffb066",
            "#7ee29a",
            "#ff8a80",
            "#c9a7ff",
            "#d7ba9a",
            "#f5a3d0",
            "#a0a7b4",
        ]
    ),
}


def dark(path):
    """Return the name of a picture's dark twin."""
    path = Path(path)
    return path.with_name(f"{path.stem}-dark{path.suffix}")


def in_both(draw, path):
    """Call ``draw(path)`` in the style of a light page, and again in that of a dark one."""
    with plt.style.context(LIGHT):
        draw(path)
    with plt.style.context(["dark_background", DARK]):
        draw(dark(path))
