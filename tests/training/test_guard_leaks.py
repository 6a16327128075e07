"""The leak harness: what leaves a guarded run carries no raw holdout value, anywhere.

The module under test does everything a careless one does: it logs the raw mean on step and epoch,
through log and log_dict, keeps a metric of its own, and lets callbacks see its outputs. Unguarded,
the harness must find all of that; guarded (unguarded="drop"), nothing.
"""

import contextlib
import io
import logging
import pickle
import warnings

import pytest
import torch
import torch_holdout as th
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import HoldoutError
from torchmetrics import MeanMetric

from support.builders.guarded import NAMESPACES, guard_class, package
from support.machines.loggers import logging_to
from support.oracles.leaks import files_below, raw_hits, spy

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]
SIZE, EPOCHS, BATCH = 97, 3, 20
VALUES = torch.linspace(0.1, 0.9, SIZE) ** 0.7
LOGGED = ("['value_step']", "['value_epoch']", "['again']", "['metric']", "['late']")
WAYS_OUT = (*LOGGED, "metrics.csv']", ".tfevents.", ".ckpt'][0]", ".ckpt'][1]", " key")


def raw_values(values):
    """Means and sums of everything and of every batch, in both precisions and in levels."""
    found = []
    for part in (values, values.bfloat16()):
        for chunk in (part, *part.split(BATCH)):
            exact = chunk.double()
            found += [float(exact.mean()), float(chunk.mean())]
        found += [float(part.double().sum()), float((part.double() * 65536).round().sum())]
    return found


def on_grid(value, grid=64):
    """An answer may be any grid point by right; some coarse bf16 values are grid points too."""
    return abs(value * grid - round(value * grid)) < 1e-3


def outputs(seen):
    """What the step returned, as callbacks saw it."""
    return [found["outputs"] for found in seen if isinstance(found, dict) and "outputs" in found]


def network(namespace, careless=True):
    pl = package(namespace)

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)
            self.mean = MeanMetric()

        def training_step(self, batch, _):
            return self.layer(batch[0].to(self.layer.weight.dtype)).square().mean()

        def validation_step(self, batch, batch_idx):
            values = batch[0].flatten()
            if careless:
                self.mean.update(values)
                self.log("value", values.mean(), prog_bar=True, on_step=True, on_epoch=True)
                self.log_dict({"again": values.mean()})
                self.log("metric", self.mean)
            return {"value": values}

        def on_validation_epoch_end(self):
            if careless and self.mean.update_count:
                self.log("late", self.mean.compute())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Net()


def run(namespace, folder, precision, *, guarded, kinds=("csv", "tensorboard")):
    """Fit and validate; return everything that left."""
    folder.mkdir()
    with logging_to(namespace, folder, kinds) as loggers:
        seen, holdout, model = watched(namespace, folder, precision, guarded, loggers)
    seen.append(files_below(folder))
    seen += [model.state_dict(), repr(model), vars(model.mean)]
    return seen, holdout


def watched(namespace, folder, precision, guarded, loggers):
    pl = package(namespace)
    holdout = th.ReusableHoldout(
        f"sqlite:///{folder}/holdout.db",
        name="val",
        size=SIZE,
        statistics={"value": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Thresholdout(threshold=0.02, sigma=0.01, guess="last"),
        budget=50,
    )
    guard = guard_class(namespace)(holdout, unguarded="drop")
    seen, printed = [], io.StringIO()
    data = DataLoader(TensorDataset(VALUES[:, None]), batch_size=BATCH)
    handler = logging.StreamHandler(printed)
    logging.getLogger().addHandler(handler)
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        model = network(namespace)
        trainer = pl.Trainer(
            max_epochs=EPOCHS,
            default_root_dir=folder,
            logger=loggers,
            callbacks=[
                spy(pl, seen),
                *([guard] if guarded else []),
                pl.callbacks.ModelCheckpoint(monitor="value", filename="{epoch}-{value:.6f}"),
                pl.callbacks.EarlyStopping("value", patience=9),
            ],
            precision=precision,
            log_every_n_steps=1,
            enable_model_summary=False,
            accelerator="cpu",
        )
        trainer.fit(model, data, data)
        seen.append(trainer.validate(model, data))
    logging.getLogger().removeHandler(handler)
    seen += [str(warning.message) for warning in caught]
    seen.append(printed.getvalue())
    if guarded:
        lent = ("log", "log_dict")  # the module's, from Lightning
        own = {key: part for key, part in vars(guard).items() if key not in lent}
        seen += [pickle.dumps(own), repr(own), guard.state_dict()]
    return seen, holdout, model


@pytest.fixture(autouse=True)
def quiet():
    for name in NAMESPACES:
        logging.getLogger(name).setLevel(logging.ERROR)


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
def test_nothing_raw_leaves_a_guarded_run(namespace, precision, tmp_path):
    plain, _ = run(namespace, tmp_path / "plain", precision, guarded=False)
    leaked = {  # in bf16 a mean over batches is none of the true ones
        float(found[key])
        for found in plain
        for key in ("late", "value_epoch")
        if isinstance(found, dict) and key in found
    }
    raw = [value for value in [*raw_values(VALUES), *leaked] if not on_grid(value)]
    hits = raw_hits(plain, raw)  # positive control, in this very precision
    assert [way for way in WAYS_OUT if not any(way in hit for hit in hits)] == []
    assert raw_hits(outputs(plain), [*VALUES.tolist(), *VALUES.bfloat16().tolist()])
    seen, holdout = run(namespace, tmp_path / "guarded", precision, guarded=True)
    assert raw_hits(seen, raw) == []
    assert outputs(seen) == []
    assert holdout.status().queries == EPOCHS  # sanity check and validate() cost nothing


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_nothing_raw_is_in_a_trackers_folder(namespace, kind, tmp_path):
    """The careless twin's folder has the raw mean, in the tracker's own files."""
    raw = [value for value in raw_values(VALUES) if not on_grid(value)]
    found = {}
    for guarded in (False, True):
        folder = tmp_path / str(guarded)
        found[guarded], _ = run(namespace, folder, "32-true", guarded=guarded, kinds=[kind])
    hits = raw_hits(found[False], raw)
    own = {"wandb": ".wandb']", "mlflow": "['metrics']"}[kind]
    assert any(own in hit for hit in hits)
    assert raw_hits(found[True], raw) == []


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_errors_raised_on_purpose_carry_nothing(namespace, tmp_path):
    pl = package(namespace)
    data = DataLoader(TensorDataset(VALUES[:, None]), batch_size=BATCH)
    raw = raw_values(VALUES)
    mistakes = [
        (network(namespace), {}, "'value' was logged"),  # in the sanity check
        (network(namespace, careless=False), {"limit_val_batches": 2}, "limit_val_batches"),
        (network(namespace, careless=False), {}, "all 98 examples"),
    ]
    for number, (model, options, said) in enumerate(mistakes):
        holdout = th.ReusableHoldout(
            "memory://",
            name="val",
            size=SIZE + (number == 2),
            statistics={"value": th.BoundedMean(0.0, 1.0)},
            mechanism=th.Thresholdout(threshold=0.02, sigma=0.01, guess="last"),
            budget=5,
        )
        trainer = pl.Trainer(
            max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path, callbacks=[
                guard_class(namespace)(holdout)
            ], **options,
        )  # fmt: skip
        with pytest.raises(HoldoutError, match=said) as caught:
            trainer.fit(model, data, data)
        error = caught.value
        while error is not None:
            assert raw_hits([str(error), repr(error.args)], raw) == []
            error = error.__cause__ or error.__context__
        assert holdout.status().queries == 0
