"""What private early stopping costs in quality, on the curves its parameters were chosen on.

Seeds are fixed: a failure is a change and not luck.
"""

from functools import cache, partial

import pytest
from experiments.curves import DIGITS, training_curves
from experiments.private_stopping import chosen, main, private, quality, raw
from torch_holdout.mechanisms.base import DEFAULT_RESOLUTION
from torch_holdout.mechanisms.private_patience import PrivateChoice, PrivatePatience


@cache
def digits():
    return [training_curves(DIGITS, seed=seed, epochs=100)[0] for seed in range(8)]


@pytest.mark.slow
def test_the_regret_of_a_private_run():
    """Cross-entropy of digits, n = 500: 45e-4 at epsilon 1 within 20 %, raw 9e-4."""
    rule = PrivatePatience(epsilon=1.0, resolution=DEFAULT_RESOLUTION)
    found = quality(digits(), partial(private, rule=rule), repetitions=40)
    assert found.regret == pytest.approx(45e-4, rel=0.2)
    without = quality(digits(), partial(raw, patience=20))
    assert without.regret == pytest.approx(9e-4, abs=1e-4)
    choice = PrivateChoice(epsilon=1.0, resolution=DEFAULT_RESOLUTION)
    assert quality(digits(), partial(chosen, rule=choice), repetitions=10).regret < found.regret
    # Twin: half of the noise is not what a run at epsilon 1 has.
    twin = PrivatePatience(epsilon=2.0, resolution=DEFAULT_RESOLUTION)
    half = quality(digits(), partial(private, rule=twin), repetitions=10)
    assert half.regret != pytest.approx(45e-4, rel=0.2)


def test_the_table_is_printed(capsys):
    main(seeds=1, epochs=3, repetitions=1)
    printed = capsys.readouterr().out
    assert "digits, CE/5, 500 examples" in printed
    assert "regression, rate 0.001, squared/4, 2000 examples" in printed
    assert printed.count("rule, epsilon 0.5") == printed.count("raw ")
