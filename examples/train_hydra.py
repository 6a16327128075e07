"""Train from a Hydra configuration: a guarded validation set, on bundled digits.

    python examples/train_hydra.py
    python examples/train_hydra.py --multirun lr=0.001,0.002,0.004
    python examples/train_hydra.py stopping=values ledger=sqlite:///values.db

Everything is built by ``hydra.utils.instantiate`` from ``configs/hydra``: the guard, its holdout,
statistics, plan and patience. A run takes about ten seconds and leaves ``outputs`` or ``multirun``,
which belong to the run, and ``holdout.db``, which belongs to the data: it lies where you are, not
in a job's folder, so all jobs of all sweeps share its budget of five sealed runs. Look at the line
"runs left" after each job; the sixth is refused, and ``torch-holdout close holdout.db`` then shows
every curve.
"""

import hydra
import torch_holdout as th
from hydra.utils import instantiate
from omegaconf import DictConfig

import lightning as L  # noqa: N812


@hydra.main(config_path="../configs/hydra", config_name="train", version_base="1.3")
def main(config: DictConfig):
    """Run one job. What it returned would be read by a sweeper: never return a raw value."""
    L.seed_everything(config.seed)
    data = instantiate(config.data)
    # Renaming the holdout does not refill its budget, because the data are recognised.
    guard = instantiate(config.guard, holdout={"fingerprint": th.fingerprint(data.val_set)})
    callbacks = [guard, *instantiate(config.callbacks).values()]
    trainer = instantiate(config.trainer, callbacks=callbacks)
    trainer.fit(instantiate(config.model), datamodule=data)
    print(f"\n{guard.outcome or guard.answers}\n\n{guard.holdout.status()}")


if __name__ == "__main__":
    main()
