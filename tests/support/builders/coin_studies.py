"""Studies on labels that are coin flips: every model is right half of the time on new examples."""

import numpy as np
import optuna
import torch
import torch_holdout as th
from torch_holdout.tuning.optuna import claim, sharing

from support.builders.sealed_sweeps import quiet

TRUTH = 0.5
VOTE = -1  # the model that is the vote of all before it


class CoinStudy:
    """One study through the real door, whose sampler reads a display or, the twin, what is sealed.

    A trial's model answers each example by a fixed coin of its own, or like the vote of the models
    before it, weighted by what the study was told of them.
    """

    def __init__(self, seed, *, size, trials, display=400):
        generator = np.random.default_rng([seed, size, trials])
        self.trials = trials
        self.sealed = generator.integers(0, 2, size)
        self.shown = generator.integers(0, 2, display)
        # Predictions for the sealed examples and, beside them, those of the display.
        self.columns = generator.integers(0, 2, (4 * trials, size + display), dtype=np.int8)
        self.account = th.ReusableHoldout(
            "memory://", name="coins", size=size, statistics={"val_acc": th.ZeroOne()},
            mechanism=th.Sealed(evaluations=1), budget=trials,
        )  # fmt: skip
        self.told = []  # (predictions, value)

    def right(self, predictions):
        size = len(self.sealed)
        return predictions[:size] == self.sealed, predictions[size:] == self.shown

    def predictions(self, model):
        if model != VOTE:
            return self.columns[model]
        votes = sum((2 * column - 1) * np.sign(value - TRUTH) for column, value in self.told)
        return (votes > 0).astype(np.int8)

    def run(self, sampler, *, reads_sealed=False, display=True):
        """Run the study, close the holdout, and return the winner's claim."""
        shows = "display_acc" if display else None

        def objective(trial):
            model = trial.suggest_int("model", VOTE, len(self.columns) - 1)
            with sharing(trial, self.account, display=shows) as shared:
                predictions = self.predictions(model)
                sealed, shown = self.right(predictions)
                sums = self.account.accumulator("val_acc")
                sums.update(torch.from_numpy(sealed))
                shared.evaluate({"val_acc": sums}, query=f"trial {trial.number}")
                if display:
                    value = float((sealed if reads_sealed else shown).mean())
                    self.told.append((predictions, value))
                    shared.report(value, 0)
                return shared.value

        study = quiet(sampler, direction="maximize", pruner=optuna.pruners.NopPruner())
        study.optimize(objective, n_trials=self.trials)
        self.account.close()
        return claim(study, self.account)


class Voting(optuna.samplers.BaseSampler):
    """Tries models one after the other, and at last the vote of them: it reads what is told."""

    def __init__(self, trials):
        self._last = trials - 1

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        return VOTE if trial.number == self._last else trial.number
