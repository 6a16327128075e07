"""The metric through Lightning's own logging: nothing raw anywhere, one row per full pass."""

import contextlib
import importlib
import io
import logging
import warnings

import pytest
import torch
import torch_holdout as th
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.training.metric import ModelReference, sanity_checking
from torchmetrics import MeanMetric, MetricCollection

from support.builders.holdouts import make_holdout
from support.oracles.leaks import raw_hits, spy

pytestmark = pytest.mark.integration
SIZE, EPOCHS = 97, 3
NAMESPACES = ["lightning.pytorch", "pytorch_lightning"]
# The value of an example is its own; the mean, 0.5997, is on no answer grid and is what leaks.
VALUES = torch.linspace(0.1, 0.9, SIZE) ** 0.7
RAW = [
    float(VALUES.mean()),
    float(VALUES.double().mean()),
    float(VALUES.bfloat16().double().mean()),  # what bf16-true would have averaged
    float(VALUES.sum()),
]


def network(pl, holdout, kind):
    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)
            if kind == "plain":
                self.metric = MeanMetric()
            else:
                self.metric = th.ReusableHoldoutMetric(holdout, "value", model=self)
            if kind == "collection":
                other = th.ReusableHoldoutMetric(holdout, "other", model=self)
                self.metric = MetricCollection({"value": self.metric, "other": other})

        def training_step(self, batch, _):
            return self.layer(batch[0].to(self.layer.weight.dtype)).square().mean()

        def validation_step(self, batch, _):
            values = batch[0].flatten()
            if kind == "forward":
                self.metric(values)
                self.log("value", self.metric, on_step=True, on_epoch=True, prog_bar=True)
                return
            self.metric.update(values)
            if kind == "collection":
                self.log_dict(self.metric)
            else:
                self.log("value", self.metric, prog_bar=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Net()


def leaked_by(seen):
    """What an ordinary metric publishes; bf16 holds it so coarsely that it is not the true mean."""
    return float(next(found["value"] for found in reversed(seen[:-3]) if _has_value(found)))


def _has_value(found):
    return isinstance(found, dict) and "value" in found


def run(namespace, folder, kind, precision="32-true"):
    """Train, validate, and return everything that left."""
    folder.mkdir()
    pl = importlib.import_module(namespace)
    loggers = importlib.import_module(f"{namespace}.loggers")
    holdout = make_holdout(
        f"sqlite:///{folder}/holdout.db",
        size=SIZE,
        budget=50,
        statistics={"value": th.BoundedMean(0.0, 1.0), "other": th.BoundedMean(0.0, 1.0)},
    )
    seen, printed = [], io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        model = network(pl, holdout, kind)
        trainer = pl.Trainer(
            max_epochs=EPOCHS,
            default_root_dir=folder,
            logger=[loggers.CSVLogger(folder), loggers.TensorBoardLogger(folder)],
            callbacks=[
                spy(pl, seen),
                pl.callbacks.ModelCheckpoint(monitor="value", filename="{epoch}-{value:.6f}"),
                pl.callbacks.EarlyStopping("value", patience=EPOCHS),
            ],
            precision=precision,
            num_sanity_val_steps=2,
            log_every_n_steps=1,
            enable_model_summary=False,
        )
        data = DataLoader(TensorDataset(VALUES[:, None]), batch_size=20)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(model, data, data)
            seen.append(trainer.validate(model, data))
    for path in folder.rglob("*"):
        seen.append(path.name)
        if path.is_file():
            seen.append(path.read_bytes() if path.suffix != ".csv" else path.read_text())
        if path.suffix == ".ckpt":
            seen.append(torch.load(path, weights_only=False))
    return [*seen, printed.getvalue(), model.state_dict(), vars(model.metric)], holdout


@pytest.fixture(autouse=True)
def quiet():
    for name in ("lightning.pytorch", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
@pytest.mark.parametrize("kind", ["update", "forward", "collection"])
def test_nothing_raw_leaves(namespace, tmp_path, kind, precision):
    seen, holdout = run(namespace, tmp_path / "guarded", kind, precision)
    plain, _ = run(namespace, tmp_path / "plain", "plain", precision)
    # An answer may be any grid point by right, and a coarse bf16 value may be one too.
    raw = [v for v in (*RAW, leaked_by(plain)) if abs(v * 64 - round(v * 64)) > 1e-3]
    assert len(raw_hits(plain, raw)) > 10  # the harness would notice
    assert raw_hits(seen, raw) == []
    statistics = 2 if kind == "collection" else 1
    # One query per epoch and statistic; the sanity check and validate() of the same weights: none.
    assert holdout.status().queries == EPOCHS * statistics
    published = [found["value"] for found in seen if isinstance(found, dict) and "value" in found]
    values = {round(float(value), 9) for value in published}
    assert values
    grid = holdout.status().statistics["value"]["grid"]
    assert all((value * grid).is_integer() or value != value for value in values)


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("kind", ["update", "forward", "collection"])
def test_a_sanity_check_of_the_whole_holdout_is_free_and_silent(namespace, kind, tmp_path):
    """Also for a metric that knows no model, and so no Trainer."""
    pl = importlib.import_module(namespace)
    statistics = {"value": th.BoundedMean(0.0, 1.0), "other": th.BoundedMean(0.0, 1.0)}
    holdout = make_holdout(size=SIZE, statistics=statistics)
    model = network(pl, holdout, kind)
    seen = []
    for metric in model.metric.values() if kind == "collection" else [model.metric]:
        metric._model = ModelReference(None)

    class Look(pl.Callback):
        def on_sanity_check_end(self, trainer, pl_module):
            seen.append((trainer.num_sanity_val_batches, holdout.status().queries))

    data = DataLoader(TensorDataset(VALUES[:, None]), batch_size=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=th.HoldoutWarning)
        pl.Trainer(
            max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path, num_sanity_val_steps=-1,
            callbacks=[Look()],
        ).fit(model, data, data)  # fmt: skip
    assert seen == [([5], 0)]
    assert holdout.status().queries == 2 * len(model.metric if kind == "collection" else "1")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_pass_that_is_cut_short_after_the_sanity_check_is_said(namespace, tmp_path):
    pl = importlib.import_module(namespace)
    holdout = make_holdout(size=SIZE, statistics={"value": th.BoundedMean(0.0, 1.0)})
    data = DataLoader(TensorDataset(VALUES[:, None]), batch_size=20)
    run = pl.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, limit_val_batches=2,
    )  # fmt: skip
    with pytest.warns(th.HoldoutWarning, match="all 97 examples") as caught:
        run.fit(network(pl, holdout, "update"), data, data)
    assert sum(issubclass(each.category, th.HoldoutWarning) for each in caught) == 1
    assert run.callback_metrics["value"].isnan()


def test_a_function_of_that_name_is_no_sanity_check():
    def _run_sanity_check():
        return sanity_checking()

    assert not _run_sanity_check()


def test_weights_that_stay_the_same_are_asked_once(tmp_path):
    """Learning rate zero: three epochs, one query."""
    pl = importlib.import_module("lightning.pytorch")
    holdout = make_holdout(size=SIZE, statistics={"value": th.BoundedMean(0.0, 1.0)})
    model = network(pl, holdout, "update")
    model.configure_optimizers = lambda: torch.optim.SGD(model.parameters(), lr=0.0)
    data = DataLoader(TensorDataset(VALUES[:, None]), batch_size=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pl.Trainer(
            max_epochs=EPOCHS, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path,
        ).fit(model, data, data)  # fmt: skip
    assert holdout.status().queries == 1
