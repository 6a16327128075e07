"""Every configuration runs, from the command line's own parser to the ledger."""

import importlib
import subprocess
import sys
from pathlib import Path

import jsonargparse
import numpy
import pytest
import torch
import torch_holdout as th
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch_holdout.ledger import Ledger
from torch_holdout.prediction import Partition

from support.builders import guarded
from support.builders.mechanisms import CONFIGURED

ROOT = Path(__file__).parent.parent
CONFIGS = {path.name: path for path in (ROOT / "configs").glob("*.yaml")}
pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice about workers and the like
    pytest.mark.filterwarnings("error::torch_holdout.HoldoutWarning"),
]
SCRIPTS = {"private_ensemble.yaml": "train_private", "logged_mean.yaml": "train_unedited"}
SMALL = ("--trainer.max_epochs", "2", "--trainer.enable_progress_bar", "false")


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Run an example's command line in this process, in a folder of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)

    def run(command, config, *more, script="train"):
        example = importlib.import_module(script)
        return example.main([command, "--config", str(CONFIGS[config]), *more])

    return run


def saved(folder):
    (found,) = folder.rglob("config.yaml")
    return found.read_text()


@pytest.mark.slow
def test_the_command_of_the_readme_runs(tmp_path):
    script, config = ROOT / "examples" / "train.py", CONFIGS["early_stopping.yaml"]
    command = [sys.executable, str(script), "fit", "--config", str(config), *SMALL]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    assert "797 examples" in found.stdout
    assert "asked 4 times" in found.stdout


def test_early_stopping_continues_its_ledger(cli, tmp_path, capsys):
    cli("fit", "early_stopping.yaml", *SMALL, "--guard.holdout.budget", "5")
    printed = capsys.readouterr().out
    assert "of 5 releases left" in printed
    assert "asked 4 times" in printed
    assert list(tmp_path.rglob("*.ckpt"))
    cli("fit", "early_stopping.yaml", *SMALL, "--guard.holdout.budget", "5")
    assert "asked 4 times" in capsys.readouterr().out  # the same seed, the same weights: repeats
    with pytest.raises(th.HoldoutMismatchError, match="does not refill"):
        cli("fit", "early_stopping.yaml", *SMALL, "--guard.holdout.name", "another")


def test_blockwise(cli, capsys):
    cli("fit", "blockwise.yaml", *SMALL)
    assert "asked 2 times" in capsys.readouterr().out


def test_sealed_stops_and_is_not_fitted_again(cli, tmp_path, capsys):
    small = (*SMALL, "--guard.stop.patience", "1")
    cli("fit", "sealed.yaml", *small)
    printed = capsys.readouterr().out
    assert "0 of 1 run left (exhausted)" in printed
    assert "2 evaluations" in printed
    with pytest.raises(th.BudgetExhaustedError, match="no run was begun"):
        cli("fit", "sealed.yaml", *small)


def test_a_plan_and_its_saved_configuration_share_the_runs(cli, tmp_path, capsys):
    """What ``save_config_callback`` writes can be read again, as it is."""
    small = (*SMALL, "--guard.stop.patience", "1", "--guard.holdout.plan.runs", "2")
    cli("fit", "plan.yaml", *small)
    assert "1 of 2 runs left" in capsys.readouterr().out
    assert list((tmp_path / "kept_weights").iterdir())
    first = tmp_path / "first.yaml"
    first.write_text(saved(tmp_path))
    importlib.import_module("train").main(["fit", "--config", str(first)])
    assert "0 of 2 runs left" in capsys.readouterr().out
    one, two = (path.read_text() for path in tmp_path.rglob("config.yaml"))
    assert one == two
    assert "class_path: torch_holdout.plan\n" in one
    with pytest.raises(th.BudgetExhaustedError, match="no run was begun"):
        importlib.import_module("train").main(["fit", "--config", str(first)])


def test_a_module_that_logs_means_is_guarded_from_the_file_alone(cli, tmp_path, capsys):
    cli("fit", "logged_mean.yaml", *SMALL, script="train_unedited")
    ledger = Ledger(f"sqlite:///{tmp_path}/logged.db")
    (account,) = ledger.accounts().values()
    statistics = ledger.summary(account).registered.statistics
    units = {name: statistic.units for name, statistic in statistics.items()}
    assert units == {"val_loss": 39, "val_acc": 797}  # batches of 20, and examples
    assert [run.passes for run in ledger.runs(account)] == [2]
    assert logged_keys(tmp_path).isdisjoint({"val_loss", "val_acc"})


def test_twin_without_the_file_logs_raw_means(cli, tmp_path):
    importlib.import_module("train_unedited").main(["fit", *SMALL, "--trainer.accelerator", "cpu"])
    assert {"val_loss", "val_acc"} <= logged_keys(tmp_path)


def logged_keys(folder):
    """What TensorBoard's files have values for."""
    (events,) = {path.parent for path in folder.rglob("events.out.*")}
    return set(EventAccumulator(str(events)).Reload().Tags()["scalars"])


def test_private_ensemble_is_trained_and_asked(cli, tmp_path, capsys):
    few = ("--model.parts.num_parts", "20", "--data.steps_per_epoch", "5")
    few += ("--trainer.enable_progress_bar", "false")
    cli("fit", "private_ensemble.yaml", *few, script="train_private")
    assert "20 queries answered" in capsys.readouterr().out
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    again = ("--ckpt_path", str(checkpoint))
    cli("predict", "private_ensemble.yaml", *few, *again, script="train_private")
    assert "40 queries answered" in capsys.readouterr().out
    found = Ledger(f"sqlite:///{tmp_path}/private.db")
    assert found.records_summary(found.find_records("digits"), check=True).queries == 40


@pytest.mark.slow
def test_postgres(cli, tmp_path, postgres, capsys):
    cli("fit", "postgres.yaml", *SMALL, "--guard.holdout.url", postgres.new_url())
    assert "asked 4 times" in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.db"))


def test_no_configuration_is_left_out():
    tested = {"early_stopping.yaml", "blockwise.yaml", "private_ensemble.yaml", "postgres.yaml"}
    tested |= {"sealed.yaml", "plan.yaml", "logged_mean.yaml"}
    assert set(CONFIGS) == tested


@pytest.mark.parametrize("config", sorted(CONFIGS))
def test_print_config_shows_a_configuration_that_parses(cli, config, tmp_path, capsys):
    script = SCRIPTS.get(config, "train")
    with pytest.raises(SystemExit) as ended:
        cli("fit", config, "--print_config", script=script)
    assert not ended.value.code
    printed = capsys.readouterr().out
    again = tmp_path / "printed.yaml"
    again.write_text(printed)
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(script).main(["fit", "--config", str(again), "--print_config"])
    assert not ended.value.code
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(printed)


def test_nothing_secret_is_saved(cli, tmp_path, monkeypatch, capsys):
    """Neither passwords nor what identifies the data: in configurations, loggers or checkpoints."""
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    cli("fit", "early_stopping.yaml", *SMALL)
    text = saved(tmp_path)
    assert "digits-val" in text
    assert "fingerprint" not in text
    secret = th.fingerprint(importlib.import_module("plain_loop").digits()[1])._digest
    for path in (tmp_path / "lightning_logs").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert b"hunter2" not in content
        assert secret not in content
        assert secret.hex().encode() not in content


def test_a_password_in_the_url_is_refused_and_written_nowhere(cli, tmp_path, capsys):
    url = "postgresql+psycopg://holdout:hunter2@127.0.0.1/holdouts"
    with pytest.raises(SystemExit):
        cli("fit", "postgres.yaml", "--guard.holdout.url", url)
    printed = capsys.readouterr()
    assert "PGPASSWORD" in printed.err
    assert "hunter2" not in printed.err + printed.out
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


MISTAKES = {
    "--guard.holdout.bugdet 5": "unrecognized arguments: --guard.holdout.bugdet",
    "--guard.holdout.budget many": 'Parser key "guard.holdout.budget"',
    "--guard.holdout.budget 0": "Expected `budget` to be a whole number",
    "--guard.holdout.size null": "Expected `size`, or plan=",
    "--guard.holdout.size 700": "Expected the fingerprinted dataset to have size=700",
    "--guard.on_exhausted explode": "Expected a typing.Literal['stop', 'freeze', 'raise']",
    "--guard.holdout.mechanism.sgima 1": "Option 'sgima' is not accepted",
    "--guard.holdout.mechanism Thresholdot": "Thresholdot",
    "--guard.holdout.statistics.val_loss.hihg 3": "hihg",
    "--guard.holdout.url ftp://x": "Expected a ledger URL like",
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.items(), ids=list(MISTAKES))
def test_mistakes_are_named(cli, tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        cli("fit", "early_stopping.yaml", *arguments.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.db"))


MISTAKES_OF_PLANS = {
    "--guard.holdout.plan.sizes 3": "Option 'sizes' is not accepted",
    "--guard.holdout.plan.queries many": "Expected a <class 'int'>. Got value: many",
    "--guard.holdout.plan.queries 0": "Expected `queries` to be a whole number from 1",
    "--guard.holdout.plan.budget 5": "Expected `runs` (decisions) or `budget`",
    "--guard.holdout.plan torch_holdout.plann": "has no attribute 'plann'",
    "--guard.holdout.plan torch_holdout.max_queries": "does not correspond to a subclass of Plan",
    "--guard.holdout.budget 5": "Expected `budget` to come from the plan (6), but also got 5",
    "--guard.stop.statistic val_los": "Expected stop= to name one of the statistics",
    "--guard.stop.patients 3": "Option 'patients' is not accepted",
    "--guard.stop.patience 0": "Expected `patience` to be a whole number from 1",
    "--guard.stop torch_holdout.Patienc": "has no attribute 'Patienc'",
}


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES_OF_PLANS.items(), ids=list(MISTAKES_OF_PLANS)
)
def test_mistakes_of_plans_are_named(cli, tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        cli("fit", "plan.yaml", *arguments.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.db"))


@pytest.mark.parametrize("key", ["name", "url", "statistics"])
def test_a_missing_parameter_is_named(cli, tmp_path, capsys, key):
    config = yaml.safe_load(CONFIGS["early_stopping.yaml"].read_text())
    del config["guard"]["holdout"][key]
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("train").main(["fit", "--config", str(tmp_path / "short.yaml")])
    assert ended.value.code == 2
    assert f"guard.holdout.{key}" in capsys.readouterr().err


def test_a_metric_that_does_not_exist_is_named(cli, capsys):
    wrong = ("--guard.holdout.statistics.val_auroc.metric", "torchmetrics.classification.AUROCC")
    with pytest.raises(SystemExit):
        cli("fit", "blockwise.yaml", *wrong)
    assert "has no attribute 'AUROCC'" in capsys.readouterr().err


def test_the_training_value_as_guess(cli, capsys):
    guess = ("--guard.holdout.mechanism.guess", "train", "--guard.holdout.url", "memory://")
    cli("fit", "early_stopping.yaml", *SMALL, *guess)
    assert "asked 4 times" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "options"), CONFIGURED.items(), ids=list(CONFIGURED))
def test_every_mechanism_is_built(name, options):
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(th.ReusableHoldout, "holdout")
    config = {"url": "memory://", "name": "val", "size": 500, "budget": 5}
    config["statistics"] = {"val_acc": {"class_path": "torch_holdout.ZeroOne"}}
    config["mechanism"] = {"class_path": f"torch_holdout.{name}", "init_args": options}
    holdout = parser.instantiate_classes(parser.parse_object({"holdout": config})).holdout
    assert holdout.mechanism == getattr(th, name)(**options)
    assert holdout.statistics == {"val_acc": th.ZeroOne()}


BOUNDS = {"low": 0.0, "high": 5.0}
STATISTICS = {
    "Ratio": {
        **BOUNDS,
        "numerator": {"class_path": "torch_holdout.BoundedMean", "init_args": BOUNDS},
        "denominator": {"class_path": "torch_holdout.ZeroOne"},
    },
    "LoggedMean": {**BOUNDS, "batch_size": 50},
    "CrossEntropy": {"high": 5.0, "reduce": "mean", "class_dim": -1, "ignore_index": 255},
    "GroupedMean": {
        **BOUNDS,
        "groups": {"class_path": "numpy.load", "init_args": {"file": "patients.npy"}},
    },
}


@pytest.mark.parametrize(("name", "options"), STATISTICS.items(), ids=list(STATISTICS))
def test_statistics_of_other_units_are_built(name, options, tmp_path, monkeypatch):
    """The ids of groups, one for each row, come from a file."""
    monkeypatch.chdir(tmp_path)
    numpy.save("patients.npy", numpy.arange(500) // 4)
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(th.ReusableHoldout, "holdout", fail_untyped=False)  # as Lightning
    config = {"url": "memory://", "name": "val", "size": 500, "budget": 5}
    config["statistics"] = {"m": {"class_path": f"torch_holdout.{name}", "init_args": options}}
    config["mechanism"] = {"class_path": "torch_holdout.Ladder", "init_args": {"step": 0.01}}
    holdout = parser.instantiate_classes(parser.parse_object({"holdout": config})).holdout
    made = dict(options)
    if name == "Ratio":
        made |= {"numerator": th.BoundedMean(**BOUNDS), "denominator": th.ZeroOne()}
    if name == "GroupedMean":
        made |= {"groups": numpy.load("patients.npy")}
    assert holdout.statistics["m"].identity() == getattr(th, name)(**made).identity()


def by_first(record):
    return int(record[0])


@pytest.mark.parametrize("key", ["index", "content", f"{__name__}.by_first"])
def test_every_key_of_a_partition_is_built(key):
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Partition, "parts")
    config = parser.parse_args([f"--parts.key={key}", "--parts.num_parts=3", "--parts.seed=1"])
    found = parser.instantiate_classes(config).parts
    assert found == Partition(num_parts=3, key=by_first if "." in key else key, seed=1)


@pytest.mark.parametrize("namespace", guarded.NAMESPACES)
def test_both_namespaces_build_the_guard(namespace, tmp_path, monkeypatch):
    """Also in the list of callbacks, where the class path names the namespace."""
    monkeypatch.chdir(tmp_path)
    command_line = importlib.import_module(f"{namespace}.cli").LightningCLI
    guard, package = guarded.guard_class(namespace), guarded.package(namespace)
    holdout = yaml.safe_load(CONFIGS["early_stopping.yaml"].read_text())["guard"]["holdout"]
    holdout |= {"size": guarded.SIZE, "url": "memory://"}

    class Guarded(command_line):
        def add_arguments_to_parser(self, parser):
            parser.add_lightning_class_args(guard, "guard")

    class Data(package.LightningDataModule):
        def train_dataloader(self):
            return guarded.loader()

        val_dataloader = train_dataloader

    network = type(guarded.network(namespace))
    trainer = {"max_epochs": 1, "logger": False, "enable_checkpointing": False}
    trainer |= {"accelerator": "cpu", "enable_progress_bar": False}
    listed = {"class_path": f"{guard.__module__}.{guard.__name__}", "init_args": {}}
    listed["init_args"]["holdout"] = holdout
    for made, config in (
        (Guarded, {"trainer": trainer, "guard": {"holdout": holdout}}),
        (command_line, {"trainer": trainer | {"callbacks": [listed]}}),
    ):
        cli = made(network, Data, run=False, args=config, save_config_callback=None)
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
        assert cli.trainer.callback_metrics["val_loss"].dtype == torch.float64
