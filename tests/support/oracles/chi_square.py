"""Goodness of fit with a stated false-alarm rate."""

from collections import Counter

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6


def fits(samples, law, false_alarm=FALSE_ALARM):
    """Whether samples are compatible with ``law`` (outcome -> probability).

    Rejects a right sampler with probability ``false_alarm`` (chi-square, bins of at least 10
    expected samples, the rest pooled). An outcome that is impossible under the law is rejected.
    """
    assert abs(sum(law.values()) - 1) < 1e-9
    counts = Counter(samples)
    if any(law.get(outcome, 0.0) < 1e-15 for outcome in counts):
        return False
    total = sum(counts.values())
    bins = [o for o, p in law.items() if p * total >= 10]
    observed = np.array([counts[o] for o in bins], dtype=float)
    expected = np.array([law[o] * total for o in bins])
    rest = total - expected.sum()
    if rest > 1e-6:
        observed = np.append(observed, total - observed.sum())
        expected = np.append(expected, rest)
    return stats.chisquare(observed, expected, sum_check=False).pvalue >= false_alarm
