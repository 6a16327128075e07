"""Run a pattern with a guard or without one, and collect what Lightning's sinks hold after it."""

import contextlib
import io
import warnings
from dataclasses import dataclass
from typing import Any

import pytest

from support.builders.guarded import NAMESPACES, guard_class, package
from support.machines.soak import soak
from support.oracles.leaks import files_below, raw_hits, spy
from training.careless.patterns import holdout, raw_values, train_loader, val_loader

LOGGERS = {"csv": "CSVLogger", "tensorboard": "TensorBoardLogger"}
FEW = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "devices": 1,
}


@dataclass
class Run:
    """A run that ended: its error, its warnings, and what left."""

    error: BaseException | None
    warned: list[str]
    queries: int
    seen: list[Any]

    @property
    def hits(self):
        return raw_hits(self.seen, raw_values())

    @property
    def published(self):
        """Hits that are not the step's own output, which nothing hides when nothing guards."""
        return [hit for hit in self.hits if "['outputs']" not in hit]


def run(pattern, namespace, folder, *, sanity=0, guarded=True, looks=True, account=None, **options):
    """Fit, validate or test the pattern's module for two epochs; ``account``: not the usual one."""
    pl = package(namespace)
    module, callbacks = pattern.case(pl)
    account, seen = account or holdout(), []
    guard = guard_class(namespace)(account, stage=stage_of(pattern), **options)
    if not looks:
        guard._looks = False
    live = account.mechanism.shows_values
    monitor = "val_loss" if guarded and live and pattern.run == "fit" else None
    trainer = pl.Trainer(
        max_epochs=2,
        logger=getattr(pl.loggers, LOGGERS[pattern.logger])(folder / "sinks"),
        callbacks=[
            spy(pl, seen),
            *callbacks,
            *([guard] if guarded else []),
            pl.callbacks.ModelCheckpoint(folder / "sinks", monitor=monitor, save_last=True),
        ],
        default_root_dir=folder / "own",
        num_sanity_val_steps=sanity,
        log_every_n_steps=1,
        **{**FEW, **pattern.trainer},
    )
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        error = attempt(pattern, trainer, module, seen)
    names = ("callback_metrics", "logged_metrics", "progress_bar_metrics")
    seen.append({name: dict(getattr(trainer, name)) for name in names})
    if (folder / "sinks").exists():
        seen.append(files_below(folder / "sinks"))
    said = [str(w.message) for w in caught if w.category.__name__ == "HoldoutWarning"]
    return Run(error, said, account.status().queries if live else 0, seen)


def attempt(pattern, trainer, module, seen):
    data = getattr(module, "data_module", None)
    try:
        if pattern.run == "fit":
            own = {"train_dataloaders": train_loader(), "val_dataloaders": val_loader()}
            trainer.fit(module, **({"datamodule": data} if data else own))
        else:
            seen.append(getattr(trainer, pattern.run)(module, val_loader(), verbose=False))
    except Exception as error:
        return error
    return None


def stage_of(pattern):
    return "test" if pattern.run == "test" else "validate"


def chain(error):
    """An error, its causes and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def messages(error):
    return [text for each in chain(error) for text in (str(each), repr(each.args))]


def settings(index):
    """Namespaces and sanity checks: each of them for every entry, in turns; all under `make soak`.

    Entry ``index`` runs in one namespace with a sanity check and in the other one without.
    """
    pairs = [(namespace, sanity) for namespace in NAMESPACES for sanity in (0, 2)]
    turns = (pairs[0], pairs[3]) if index % 2 else (pairs[1], pairs[2])
    return soak(pairs, turns)


def entries(catalogue, name):
    """Parameters for a test: each entry of a catalogue with its settings."""
    return [
        pytest.param(entry, namespace, sanity, id=f"{name(entry)}-{namespace}-{sanity}")
        for index, entry in enumerate(catalogue)
        for namespace, sanity in settings(index)
    ]
