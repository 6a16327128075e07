"""An Optuna study whose trials share one holdout. What Optuna and Ray share is in ``tuning/``.

On a sealed holdout the sampler, the pruner and the trials' early stopping read a *display*, a set
that may be watched, and every evaluation of the holdout is sealed until it is closed::

    def objective(trial):
        with sharing(trial, holdout, display="display_loss") as shared:
            net = Net(lr=trial.suggest_float("lr", 1e-4, 1e-1, log=True))
            guard = HoldoutGuard(holdout, public_dataloaders=(1,))
            trainer = L.Trainer(callbacks=[guard, shared.pruning(guard)])
            trainer.fit(net, train_loader, [val_loader, display_loader])
            return shared.value

    study.optimize(objective, n_trials=100)
    holdout.close()
    print(claim(study, holdout))

On a live holdout, which answers with values, they read what it has published, one answer a trial::

    with sharing(trial, holdout, "val_acc") as shared:
        guard = HoldoutGuard(holdout)
        trainer = L.Trainer(callbacks=[guard, shared.pruning(guard)])
        trainer.fit(net, train_loader)
        trainer.validate(net, val_loader)  # one question, when it is trained
        return shared.value

A released value is told as it is. So is a guess that is near the holdout's value (Thresholdout and
its kin): it is off by up to the threshold and its noise, good enough to prune by and not good
enough to claim. A Ladder's guess is the best value of any trial and says that this one is not
better by more than a step; the trial is told one step worse than the best, and says so in its user
attribute ``torch_holdout:guess``. A stale value, repeated after the budget is gone, is never told.
The best value of the study may therefore be a guess; a ``claim`` never is.
"""

from torch_holdout.tuning.claims import Claim, reask
from torch_holdout.tuning.optuna.live import SharedTrial
from torch_holdout.tuning.optuna.results import claim, closed_study, front, ranking
from torch_holdout.tuning.optuna.sealed import SealedTrial
from torch_holdout.tuning.optuna.studies import PRUNED as PRUNED
from torch_holdout.tuning.optuna.trials import sharing
from torch_holdout.tuning.sealed_claims import FrontPoint

__all__ = [
    "Claim",
    "FrontPoint",
    "SealedTrial",
    "SharedTrial",
    "claim",
    "closed_study",
    "front",
    "ranking",
    "reask",
    "sharing",
]
