"""Private prediction with real processes, and what leaves while members are trained and asked."""

import logging
import os
import subprocess
import sys
import warnings

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import Logger
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.ledger import Ledger
from torch_holdout.prediction import PrivacyBudget, PrivatePredictor, SoftMajority

from support.builders.ensembles import data, ensemble, trainer
from support.builders.members import Members, queries
from support.programs import predict_ranks

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),  # Lightning's own
]


def run_ranks(folder, count):
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, predict_ranks.__file__, str(folder), str(count)],
        capture_output=True, text=True, env=environment, timeout=180, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_two_ranks_share_the_queries_and_the_account(tmp_path):
    found = run_ranks(tmp_path, 21)
    assert found.returncode == 0, found.stderr[-2000:]
    labels = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]
    assert sorted(map(len, labels)) == [10, 11]  # each query once, none padded
    ledger = Ledger(f"sqlite:///{tmp_path}/private.db")
    assert ledger.records_summary(ledger.find_records("records"), check=True).queries == 21
    again = run_ranks(tmp_path, 500)
    assert again.returncode != 0
    assert "but" in again.stderr
    assert "queries are left" in again.stderr
    assert ledger.records_summary(ledger.find_records("records")).queries == 21


class Ears(Logger):
    """Hears whatever a Trainer tells a logger."""

    name, version = "ears", "0"

    def __init__(self):
        super().__init__()
        self.heard = []

    def log_metrics(self, metrics, step=None):
        self.heard.append(metrics)

    def log_hyperparams(self, params, *args, **kwargs):
        self.heard += [params] if params else []


class Eyes(Callback):
    """Sees what a Trainer shows to callbacks and progress bars."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen += [trainer.callback_metrics, trainer.progress_bar_metrics]

    def on_train_end(self, trainer, pl_module):
        self.seen += [trainer.callback_metrics, trainer.logged_metrics]


@pytest.mark.parametrize("asked_for", [False, True])
def test_training_tells_nothing_unless_it_is_asked_to(asked_for, caplog, capfd):
    ears, eyes = Ears(), Eyes()
    found = ensemble(log_train_loss=asked_for)
    with caplog.at_level(logging.DEBUG):
        trainer(pl.Trainer, logger=ears, callbacks=[eyes], log_every_n_steps=1, max_epochs=2).fit(
            found, datamodule=data()
        )
    shown = any(metrics for metrics in eyes.seen)
    told = [m for m in ears.heard if set(m) - {"epoch"}]
    assert shown == bool(told) == asked_for  # the twin that asks is heard: the ears are no dummies
    assert ("loss" in caplog.text) is False
    assert "loss" not in capfd.readouterr().out


def test_a_nan_in_one_member_tells_nothing(recwarn, caplog):
    """Non-finite weights of one member raise, warn and log nothing, in training or prediction."""
    found = ensemble()
    with torch.no_grad():
        next(found.members.parameters())[0].fill_(torch.nan)
    trainer(pl.Trainer).fit(found, datamodule=data())
    predictor = PrivatePredictor(
        found, SoftMajority(eta=0.2), budget=PrivacyBudget(epsilon=50.0), ledger="memory://",
        name="records",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = predictor(torch.randn(20, 6, generator=torch.Generator().manual_seed(0)))
    assert ((labels >= 0) & (labels < 3)).all()
    assert "nan" not in caplog.text.lower()


def test_prediction_tells_loggers_nothing():
    ears = Ears()
    predictor = PrivatePredictor(
        Members(), SoftMajority(eta=0.1), budget=PrivacyBudget(epsilon=4.0, delta=1e-5),
        ledger="memory://", name="records",
    )  # fmt: skip
    loader = DataLoader(TensorDataset(queries(8)), batch_size=4)
    out = trainer(pl.Trainer, logger=ears).predict(predictor, loader)
    assert [m for m in ears.heard if set(m) - {"epoch"}] == []
    assert all(labels.dtype == torch.int64 for labels in out)
    assert all(labels.shape == (4,) for labels in out)
