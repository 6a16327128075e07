"""Levels and their squares without torch: numpy's floats and Python's integers."""

import numpy as np
import torch


def levels_of(statistic, values, resolution):
    """The level of each value, as a list of integers."""
    given = values.to(torch.float64).numpy()
    worse = 1.0 if statistic.mode == "min" else 0.0
    unit = (np.clip(given, statistic.low, statistic.high) - statistic.low) / (
        statistic.high - statistic.low
    )
    unit = np.where(np.isfinite(given), unit, worse)
    return [int(level) for level in np.rint(unit * resolution)]


def squares_of(levels):
    """The sum of squares."""
    return sum(level**2 for level in levels)
