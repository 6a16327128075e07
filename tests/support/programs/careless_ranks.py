"""What two ranks of Lightning's DDP run: careless modules, one after the other.

``python careless_ranks.py folder 2 careless`` forks the ranks; each writes what it was told.
"""

import json
import sys
from pathlib import Path

import lightning.pytorch as pl
from torch_holdout.lightning import HoldoutGuard

from support.oracles.leaks import raw_hits
from support.programs import ddp_guard
from training.careless.careless import PATTERNS
from training.careless.patterns import holdout, raw_values, train_loader, val_loader
from training.careless.ranks import CHOSEN, only_on_rank_zero


def careless(rank, world, folder):
    """Fit each pattern on both ranks; return what every rank raised, charged and published."""
    chosen = [pattern for pattern in PATTERNS if pattern.id in CHOSEN]
    return {pattern.id: attempt(pattern, world, folder) for pattern in chosen}


def one_rank(rank, world, folder):
    """Fit a module that is careless on rank zero only: the other must not wait for it."""
    return {pattern.id: attempt(pattern, world, folder) for pattern in only_on_rank_zero}


def attempt(pattern, world, folder):
    module, callbacks = pattern.case(pl)
    account = holdout(url=f"sqlite:///{folder}/{pattern.id}.db")
    trainer = ddp_guard.trainer_of(
        world, [*callbacks, HoldoutGuard(account)], max_epochs=1, default_root_dir=folder,
        logger=pl.loggers.CSVLogger(folder / "logs"),
    )  # fmt: skip
    try:
        trainer.fit(module, train_loader(), val_loader())
        error = "it went through"
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    seen = [dict(trainer.callback_metrics), dict(trainer.logged_metrics), error]
    return {
        "error": error,
        "hits": raw_hits(seen, raw_values()),
        "queries": account.status().queries,
    }


if __name__ == "__main__":
    ddp_guard.SCENARIOS |= {"careless": careless, "one_rank": one_rank}
    folder, worlds, scenario = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
    print(json.dumps([ddp_guard.group_of(folder, int(n), scenario) for n in worlds]))
