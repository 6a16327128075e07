"""A guarded run under each of Lightning's progress bars; started on a terminal by the tests."""

import logging
import sys
import warnings
from pathlib import Path

import torch_holdout as th

from support.guarded import guard_class, holdout, loader, network, package


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
        trainer.fit(network(namespace), loader(drop_last=True), loader())


if __name__ == "__main__":
    main(*sys.argv[1:])
