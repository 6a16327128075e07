"""Every mechanism, with parameters that suit a holdout of 50 examples."""

import torch_holdout as th

MECHANISMS = {
    "thresholdout-last": th.Thresholdout(threshold=0.05, sigma=0.01, guess="last"),
    "thresholdout-train": th.Thresholdout(threshold=0.05, sigma=0.01, guess="train"),
    "sparse": th.SparseVector(threshold=0.05, sigma=0.01),
    "ladder": th.Ladder(step=0.05),
    "noisy-ladder": th.Ladder(step=0.05, sigma=0.01),
    "ladder-above-a-baseline": th.Ladder(step=0.05, sigma=0.01, baseline={"val_acc": 0.4}),
    "laplace": th.LaplaceMechanism(epsilon=2.0),
    "gaussian": th.GaussianMechanism(sigma=0.01),
    "effective-rounds": th.EffectiveRounds(threshold=0.05, sigma=0.01, rounds=9),
}
# Arguments of every class as a configuration has them, from the lines above.
CONFIGURED = {type(rule).__name__: vars(rule) for rule in MECHANISMS.values()} | {
    "Thresholdout": vars(MECHANISMS["thresholdout-last"]) | {"initial": {"val_acc": 0.1}},
    "Sealed": {"evaluations": 20, "epsilon": 1.0},
}


def guess_of(mechanism, value=0.5):
    """What ``release`` needs besides the sums."""
    return {"guess": value} if mechanism.wants_guess() else {}
