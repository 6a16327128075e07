"""A guarded run under each of Lightning's progress bars; started on a terminal by the tests."""

import logging
import sys
import time
import warnings
from pathlib import Path

import torch_holdout as th
from torch.nn import functional

from support.builders.guarded import guard_class, holdout, loader, network, package


def unhurried(self, batch, batch_idx):
    """At most fifty batches a second: a speed of three digits takes the room of a value's end."""
    time.sleep(0.02)
    return functional.cross_entropy(self(batch[0]), batch[1])


def main(namespace, folder):
    warnings.simplefilter("ignore")
    pl = package(namespace)
    logging.getLogger(namespace).setLevel(logging.ERROR)
    for bar in (pl.callbacks.TQDMProgressBar(), pl.callbacks.RichProgressBar()):
        name = type(bar).__name__
        print(f"\n=== {name}")
        tight = th.Thresholdout(threshold=0.001, sigma=0.0005, guess="last")
        trainer = pl.Trainer(
            max_epochs=3,
            callbacks=[bar, guard_class(namespace)(holdout(mechanism=tight))],
            logger=pl.loggers.CSVLogger(Path(folder) / name),
            enable_checkpointing=False,
            enable_model_summary=False,
            accelerator="cpu",
            log_every_n_steps=1,
        )
        module = network(namespace, training_step=unhurried)
        trainer.fit(module, loader(drop_last=True), loader())


if __name__ == "__main__":
    main(*sys.argv[1:])
