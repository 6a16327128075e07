"""A display loader beside a sealed holdout: plain callbacks watch it, and the holdout is silent."""

import logging

import pytest
import torch
import torch_holdout as th
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import InvalidArgumentError, UnguardedLogError

from support.builders.guarded import IN_A_TRAINER, NAMESPACES, guard_class, package, trainer
from support.builders.sealed_guards import (
    examples,
    one_batch,
    scripted,
    small_account,
    small_loader,
)

pytestmark = [*IN_A_TRAINER, pytest.mark.parametrize("namespace", NAMESPACES)]
DISPLAY = [3.0, 2.0, 1.0, 2.0, 2.0, 2.0]
SEALED = [3.0, 1.0, 2.0, 2.0, 2.0, 2.0]


def watched():
    """Examples that are not the holdout's."""
    return TensorDataset(100.0 + torch.arange(10.0)[:, None])


def displayed(namespace, name="display_loss", **options):
    """A scripted module that logs loader 1."""
    module = scripted(namespace, SEALED)
    sealed_step = module.validation_step

    def validation_step(batch, batch_idx, dataloader_idx=0):
        if dataloader_idx == 0:
            return sealed_step(batch, batch_idx)
        value = DISPLAY[max(int(module.steps), 1) - 1]
        module.log(name, batch[0].mean() * 0.0 + value, **options)
        return None

    module.validation_step = validation_step
    return module


def fit(namespace, folder, callbacks=(), module=None, guard=None, **options):
    own = small_account()
    guard = guard_class(namespace)(own, public_dataloaders=(1,), **(guard or {}))
    run = trainer([guard, *callbacks], namespace, max_epochs=6, default_root_dir=folder, **options)
    module = displayed(namespace) if module is None else module
    run.fit(module, one_batch(), [small_loader(), DataLoader(watched(), 5)])
    return guard, run, module, own


def test_plain_callbacks_stop_and_save_by_the_display(namespace, tmp_path):
    callbacks = package(namespace).callbacks
    stopper = callbacks.EarlyStopping("display_loss/dataloader_idx_1", patience=2)
    saver = callbacks.ModelCheckpoint(
        tmp_path, monitor="display_loss/dataloader_idx_1", filename="best"
    )
    guard, run, module, own = fit(namespace, tmp_path, [stopper, saver], enable_checkpointing=True)
    assert run.current_epoch == 5
    saved = torch.load(tmp_path / "best.ckpt", weights_only=True)["state_dict"]
    assert int(saved["steps"]) == 3  # the display's best
    assert guard.outcome.reason == "ended"
    assert guard.outcome.best_evaluation is None
    assert int(module.steps) == 5
    closing = own.close()
    assert closing.load_best(module).evaluation == 2  # the holdout's best
    assert int(module.steps) == 2


def test_without_the_loaders_number(namespace, tmp_path):
    stopper = package(namespace).callbacks.EarlyStopping("display_loss", patience=1)
    module = displayed(namespace, add_dataloader_idx=False)
    _, run, *_ = fit(namespace, tmp_path, [stopper], module)
    assert run.current_epoch == 4
    assert float(run.callback_metrics["display_loss"]) == 2.0


def test_a_plateau_scheduler_may_read_the_display(namespace, tmp_path):
    module = displayed(namespace)

    def configure_optimizers():
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        monitor = "display_loss/dataloader_idx_1"
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": monitor},
        }

    module.configure_optimizers = configure_optimizers
    _, run, *_ = fit(namespace, tmp_path, module=module)
    assert run.optimizers[0].param_groups[0]["lr"] < 0.01


@pytest.mark.parametrize("sanity", [0, 2])
def test_it_says_which_name_to_monitor(namespace, tmp_path, caplog, sanity):
    caplog.set_level(logging.INFO, "torch_holdout")
    fit(namespace, tmp_path, num_sanity_val_steps=sanity)
    said = [record.getMessage() for record in caplog.records]
    assert sum("'<name>/dataloader_idx_i'" in line for line in said) == 1
    assert sum("monitor='display_loss/dataloader_idx_1'" in line for line in said) == 1


def test_a_name_without_the_number_is_warned_of_before_training(namespace, tmp_path, caplog):
    stopper = package(namespace).callbacks.EarlyStopping("display_loss")
    with pytest.raises(RuntimeError, match="not available"):  # Lightning's, after an epoch
        fit(namespace, tmp_path, [stopper])
    assert "EarlyStopping monitors 'display_loss', but loader 1 logs" in caplog.text
    assert "add_dataloader_idx=False" in caplog.text


def test_the_display_may_share_the_name_but_not_the_key(namespace, tmp_path):
    _, run, *_ = fit(namespace, tmp_path, module=displayed(namespace, "val_loss"))
    assert "val_loss" not in run.callback_metrics
    assert float(run.callback_metrics["val_loss/dataloader_idx_1"]) == 2.0
    module = displayed(namespace, "val_loss", add_dataloader_idx=False)
    with pytest.raises(UnguardedLogError, match="is sealed"):
        fit(namespace, tmp_path, module=module)


def test_the_holdouts_own_loader_is_not_watched_by_its_number(namespace, tmp_path):
    stopper = package(namespace).callbacks.EarlyStopping("val_loss/dataloader_idx_0")
    with pytest.raises(InvalidArgumentError, match="sealed"):
        fit(namespace, tmp_path, [stopper])


def test_with_a_stop_of_its_own_the_display_is_for_people(namespace, tmp_path):
    guard, run, module, _ = fit(
        namespace, tmp_path, guard={"stop": th.Patience("val_loss", patience=2)}
    )
    assert (guard.outcome.best_evaluation, guard.outcome.stopped_at) == (2, 4)
    assert int(module.steps) == 2
    assert float(run.callback_metrics["display_loss/dataloader_idx_1"]) == 2.0


def test_a_split_of_one_validation_set(namespace, tmp_path):
    """The code of the guide: cut once, the display stops, closing chooses."""
    display, sealed = th.split(examples(20), display=0.4, seed=0)
    own = small_account(size=len(sealed), fingerprint=th.fingerprint(sealed))
    guard = guard_class(namespace)(own, public_dataloaders=(1,))
    stopper = package(namespace).callbacks.EarlyStopping("display_loss", patience=1)
    run = trainer([guard, stopper], namespace, max_epochs=6, default_root_dir=tmp_path)
    module = displayed(namespace, add_dataloader_idx=False)
    run.fit(module, one_batch(), [DataLoader(sealed, 5), DataLoader(display, 5)])
    assert own.close().best.evaluation == 2
