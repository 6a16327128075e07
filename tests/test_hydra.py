"""``hydra.utils.instantiate`` builds every object without tricks, and a sweep shares one budget."""

import functools
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_holdout as th
import yaml
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch.nn import functional
from torch_holdout._fingerprints.hashing import digest
from torch_holdout.mechanisms import Mechanism
from torch_holdout.prediction import Partition
from torch_holdout.statistics import Statistic
from torchmetrics.classification import BinaryAUROC

from support.builders import guarded
from support.builders.mechanisms import CONFIGURED

ROOT = Path(__file__).parent.parent
pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice about workers and the like
    pytest.mark.filterwarnings("error::torch_holdout.HoldoutWarning"),
]
CONVERSIONS = [None, "none", "partial", "object", "all"]
LOSS = functools.partial(functional.cross_entropy, reduction="none")
LOSS_TARGET = {
    "_target_": "torch.nn.functional.cross_entropy",
    "_partial_": True,
    "reduction": "none",
}
STATISTICS = {
    "BoundedMean": ({"low": 0, "high": 5}, th.BoundedMean(0.0, 5.0)),
    "ZeroOne": ({}, th.ZeroOne()),
    "CrossEntropy": ({"high": 5.0}, th.CrossEntropy(5.0)),
    "Blockwise": (
        {
            "metric": {"_target_": "torchmetrics.classification.BinaryAUROC"},
            "blocks": 20,
            "low": 0.0,
            "high": 1.0,
        },
        th.Blockwise(BinaryAUROC(), blocks=20, low=0.0, high=1.0),
    ),
    "LoggedMean": (
        {"low": 0.0, "high": 5.0, "batch_size": 20},
        th.LoggedMean(0.0, 5.0, batch_size=20),
    ),
    "GroupedMean": (
        {"low": 0.0, "high": 1.0, "groups": {"_target_": f"{__name__}.patients"}},
        th.GroupedMean(0.0, 1.0, groups=[row // 4 for row in range(500)]),
    ),
    "Ratio": (
        {
            "numerator": {"_target_": "torch_holdout.BoundedMean", "low": 0.0, "high": 9.0},
            "denominator": {"_target_": "torch_holdout.BoundedMean", "low": 0.0, "high": 3.0},
            "low": 0.0,
            "high": 5.0,
        },
        th.Ratio(th.BoundedMean(0.0, 9.0), th.BoundedMean(0.0, 3.0), low=0.0, high=5.0),
    ),
}


def patients():
    """The patient of each of 500 rows."""
    return [row // 4 for row in range(500)]


def test_no_statistic_or_mechanism_is_left_out():
    public = {name: getattr(th, name) for name in th.__all__}
    kinds = {name for name, value in public.items() if isinstance(value, type)}
    assert {name for name in kinds if issubclass(public[name], Statistic)} == set(STATISTICS)
    assert {name for name in kinds if issubclass(public[name], Mechanism)} == set(CONFIGURED)


def target(path, /, **arguments):
    return {"_target_": f"torch_holdout.{path}", **arguments}


def holdout_config(**changes):
    config = target("ReusableHoldout", url="memory://", name="val", size=500, budget=5)
    config["statistics"] = {"val_acc": target("ZeroOne")}
    config["mechanism"] = target("Ladder", step=0.01)
    return OmegaConf.create(config | changes)


def converted(config, convert):
    return config if convert is None else OmegaConf.merge(config, {"_convert_": convert})


@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_is_built(name, convert):
    arguments, expected = STATISTICS[name]
    config = holdout_config(statistics={"val": target(name, **arguments)})
    built = instantiate(converted(config, convert)).statistics["val"]
    assert type(built) is type(expected)
    assert built.identity() == expected.identity()
    assert built.source() == expected.source()


@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize("name", CONFIGURED)
def test_every_mechanism_is_built(name, convert):
    config = holdout_config(mechanism=target(name, **CONFIGURED[name]))
    built = instantiate(converted(config, convert)).mechanism
    assert built == getattr(th, name)(**CONFIGURED[name])
    assert built.identity() == getattr(th, name)(**CONFIGURED[name]).identity()


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_a_partial_is_the_same_query_as_in_python(convert):
    """Newer Hydras make partials of a class of their own."""
    loss = target("BoundedMean", low=0.0, high=5.0, per_example=LOSS_TARGET)
    config = holdout_config(statistics={"val_loss": loss})
    built = instantiate(converted(config, convert)).statistics["val_loss"]
    assert built.source() == th.BoundedMean(0.0, 5.0, per_example=LOSS).source()
    logits, classes = torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1])
    assert torch.equal(built.per_example(logits, classes), LOSS(logits, classes))


def test_twin_partial_of_other_arguments_is_another_query():
    loss = target("BoundedMean", low=0.0, high=5.0, per_example=LOSS_TARGET | {"ignore_index": 3})
    built = instantiate(holdout_config(statistics={"val_loss": loss})).statistics["val_loss"]
    assert built.source() != th.BoundedMean(0.0, 5.0, per_example=LOSS).source()


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_a_plan_and_interpolations(convert):
    plan = target("plan", size="${rows}", queries=20, runs="${runs}")
    config = OmegaConf.create({"rows": 500, "runs": 3})
    config.holdout = holdout_config(plan=plan)
    for name in ("size", "mechanism", "budget"):
        del config.holdout[name]
    built = instantiate(converted(config.holdout, convert))
    assert (built.size, built.budget, built.mechanism) == (500, 3, th.Sealed(evaluations=20))


def test_objects_that_are_made_already_can_be_given():
    """Hydra takes the fields of a dataclass for a configuration: they are made again."""
    data = guarded.data()
    statistics = {name: made for name, (_, made) in STATISTICS.items() if name != "GroupedMean"}
    statistics["GroupedMean"] = th.GroupedMean(0.0, 1.0, groups=list(range(len(data))))
    statistics["per_example"] = th.BoundedMean(0.0, 5.0, per_example=LOSS)
    own = target("ReusableHoldout", url="memory://", name="val")
    built = instantiate(
        own,
        statistics=statistics,
        mechanism=th.Thresholdout(
            threshold=0.03, sigma=0.0, guess="last", initial={"ZeroOne": 0.1}
        ),
        size=len(data),
        budget=3,
        fingerprint=th.fingerprint(data),
    )
    assert list(built.statistics) == list(statistics)
    for name, statistic in built.statistics.items():
        assert statistic.identity() == statistics[name].identity()
        assert statistic.source() == statistics[name].source()
    assert built.mechanism.initial == {"ZeroOne": 0.1}
    made = th.plan(size=500, queries=20, budget=4)
    planned = instantiate(own, statistics={"val_acc": th.ZeroOne()}, plan=made)
    assert (planned.mechanism, planned.budget) == (made.mechanism, 4)
    sealed = instantiate(holdout_config(mechanism=target("Sealed", evaluations=9)))
    stop = th.Patience("val_acc", patience=3, after=2)
    guard = target("lightning.HoldoutGuard")
    assert instantiate(guard, holdout=sealed, stop=stop).stop == stop


@pytest.mark.parametrize("namespace", guarded.NAMESPACES)
@pytest.mark.parametrize("convert", CONVERSIONS)
def test_the_guard_takes_lists_and_runs(namespace, convert):
    package = namespace.split(".")[0]
    loss = target("BoundedMean", low=0.0, high=5.0)
    holdout = holdout_config(
        size=guarded.SIZE, statistics={"val_loss": loss, "val_acc": target("ZeroOne")}, budget=40
    )
    config = {
        "guard": target(f"{package}.HoldoutGuard", holdout=holdout, public=["lr"]),
        "stopping": {"_target_": f"{namespace}.callbacks.EarlyStopping", "monitor": "val_loss"},
    }
    callbacks = list(instantiate(converted(OmegaConf.create(config), convert)).values())
    assert callbacks[0].public == ("lr",)
    options = {"max_epochs": 2, "logger": False, "enable_checkpointing": False}
    options |= {"accelerator": "cpu", "enable_progress_bar": False}
    trainer = instantiate({"_target_": f"{namespace}.Trainer"} | options, callbacks=callbacks)
    assert trainer.callbacks[0] is callbacks[0]
    guarded.fit(trainer, guarded.network(namespace))
    assert callbacks[0].answers["val_loss"].kind in ("guess", "release")
    assert callbacks[0].holdout.status().queries == 4


def test_public_loaders_are_a_list():
    config = target("lightning.HoldoutGuard", holdout=holdout_config(), public_dataloaders=[1, 2])
    assert instantiate(OmegaConf.create(config)).public_dataloaders == (1, 2)


def test_a_configuration_names_a_query_as_its_dictionary_does():
    """Projects save the whole configuration as hyperparameters, and those are part of a query."""
    plain = {"sizes": [64, 32], "lr": 0.1, "data": {"folds": [[1], [2]]}}
    config = OmegaConf.create(plain | {"lr": "${rate}", "rate": 0.1})
    assert digest(config, lenient=True) == digest(plain | {"rate": 0.1}, lenient=True)
    assert digest(config, lenient=True) != digest(plain | {"rate": 0.2}, lenient=True)
    config.rate = 0.2
    assert digest(config, lenient=True) == digest(plain | {"lr": 0.2, "rate": 0.2}, lenient=True)


def test_hyperparameters_that_cannot_be_resolved_do_not_break_a_run():
    class Configured(type(guarded.network())):
        def __init__(self, config):
            super().__init__()
            self.save_hyperparameters()

    guard = guarded.guard_class("lightning.pytorch")(guarded.holdout())
    config = OmegaConf.create({"lr": 0.1, "name": "???", "out": "${hydra:runtime.output_dir}"})
    guarded.fit(guarded.trainer([guard], max_epochs=2), Configured(config))
    assert guard.holdout.status().queries == 4


def test_several_guess_loaders_are_a_list():
    """A ListConfig, which is no list, is not one loader of loaders."""
    mechanism = target("Thresholdout", threshold=0.02, sigma=0.0, guess="train")
    holdout = holdout_config(
        size=guarded.SIZE,
        statistics={"val_loss": target("BoundedMean", low=0.0, high=5.0)},
        mechanism=mechanism,
    )
    others = {"_target_": f"{guarded.__name__}.data", "seed": 5}
    loaders = [{"_target_": f"{guarded.__name__}.loader", "dataset": others}]
    config = target("lightning.HoldoutGuard", holdout=holdout, guess_dataloaders=loaders)
    guard = instantiate(OmegaConf.create(config))
    module = guarded.network(validation_step=guarded.only_loss)
    guarded.fit(guarded.trainer([guard], max_epochs=1), module)
    assert guard.answers["val_loss"].kind in ("guess", "release")


def test_a_metric_of_a_nested_holdout():
    metric = target("ReusableHoldoutMetric", holdout=holdout_config(size=4), name="val_acc")
    built = instantiate(metric)
    built.update(torch.tensor([True, True, False, True]))
    assert float(built.compute()) == pytest.approx(0.75, abs=0.1)
    assert built.answer.kind == "release"


def test_private_prediction_is_built(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    config = OmegaConf.create(
        """
        model:
          _target_: torch_holdout.prediction.lightning.PartitionedEnsemble
          model_fn: {_target_: train_private.Network, _partial_: true, width: 8}
          parts: {_target_: torch_holdout.prediction.Partition, num_parts: 20, seed: 7}
          loss: {_target_: torch.nn.functional.cross_entropy, _partial_: true}
          optimizer: {_target_: torch.optim.Adam, _partial_: true, lr: 0.005}
        data:
          _target_: train_private.PrivateDigits
          parts: ${model.parts}
        predictor:
          _target_: torch_holdout.prediction.lightning.PrivatePredictor
          mechanism: {_target_: torch_holdout.prediction.GNMax, sigma: 10.0}
          budget: {_target_: torch_holdout.prediction.PrivacyBudget, epsilon: 8, delta: 1.0e-05}
          ledger: memory://
          name: digits
        """
    )
    ensemble, data = instantiate(config.model), instantiate(config.data)
    assert ensemble.partition == data.parts == Partition(num_parts=20, seed=7)
    predictor = instantiate(config.predictor, ensemble=ensemble)
    assert predictor.ensemble is ensemble
    assert predictor.records.budget.epsilon == 8


MISTAKES = {
    "a statistic without a target": (
        {"statistics": {"val_acc": {"low": 0.0, "high": 1.0}}},
        r"Expected `statistics\['val_acc'\]` to be of type Statistic, but got dict",
    ),
    "a statistic that does not exist": (
        {"statistics": {"val_acc": target("ZeroTwo")}},
        "Error locating target 'torch_holdout.ZeroTwo'",
    ),
    "an argument that does not exist": (
        {"mechanism": target("Ladder", stepp=0.01)},
        "unexpected keyword argument 'stepp'",
    ),
    "a bound that is no number": (
        {"statistics": {"val_acc": target("BoundedMean", low="none", high=1)}},
        "Expected `low` to be a finite number, but got 'none'",
    ),
    "statistics in a list": (
        {"statistics": [target("ZeroOne")]},
        "Expected `statistics` to map names to statistics",
    ),
    "a plan and a budget": (
        {"plan": target("plan", size=500, queries=9, runs=2)},
        "Expected `mechanism` to come from the plan|Expected `budget` to come from the plan",
    ),
    "a plan without a target": (
        {"plan": {"size": 500, "queries": 9}},
        "Expected `plan` to be of type Plan, but got dict",
    ),
}


@pytest.mark.parametrize(("change", "message"), MISTAKES.values(), ids=list(MISTAKES))
def test_mistakes_are_named(change, message):
    config = OmegaConf.merge(holdout_config(), {})
    for name, value in change.items():
        config[name] = value
    with pytest.raises(InstantiationException, match=message):
        instantiate(config)


# ---- the example


@pytest.fixture
def hydra_run(tmp_path, monkeypatch, capsys):
    """Run the example's jobs in this process, in a folder of its own; return what was printed."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # errors as they are, and not an exit
    where = f"--config-path={ROOT / 'configs' / 'hydra'}"  # that of a module is a module
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
    quiet += ["++trainer.enable_progress_bar=false", "max_epochs=2"]

    def run(*arguments):
        example = importlib.import_module("train_hydra")
        options = [a for a in arguments if a.startswith("-")]
        overrides = [a for a in arguments if not a.startswith("-")]
        monkeypatch.setattr(sys, "argv", ["train_hydra.py", where, *options, *quiet, *overrides])
        example.main()
        return capsys.readouterr().out

    return run


def test_a_sweep_shares_one_budget(hydra_run, tmp_path):
    printed = hydra_run("lr=0.01")
    assert "4 of 5 runs left" in printed
    assert "run 1 (seed 0, lr 0.01)" in printed
    printed = hydra_run("--multirun", "lr=0.001,0.002", "hydra.job.chdir=true")
    assert "3 of 5 runs left" in printed
    assert "2 of 5 runs left" in printed
    with pytest.raises(th.BudgetExhaustedError, match="no run was begun"):
        hydra_run("--multirun", "seed=1,2,3")
    assert [path.name for path in tmp_path.rglob("*.db")] == ["holdout.db"]
    with pytest.raises(InstantiationException, match="does not refill"):
        hydra_run("guard.holdout.name=another")


def test_twin_with_a_relative_ledger_has_a_budget_in_every_job(hydra_run, tmp_path):
    """What the configuration's comment warns of."""
    relative = "ledger=sqlite:///holdout.db"
    printed = hydra_run("--multirun", relative, "lr=0.001,0.002", "hydra.job.chdir=true")
    assert printed.count("4 of 5 runs left") == 2
    assert len(list(tmp_path.rglob("holdout.db"))) == 2


def test_values_steer_early_stopping(hydra_run, tmp_path):
    printed = hydra_run("stopping=values")
    assert "asked 4 times" in printed
    assert list(tmp_path.rglob("*.ckpt"))
    assert "asked 4 times" in hydra_run("stopping=values")  # the same seed: repeats


def test_a_saved_configuration_runs_again(hydra_run, tmp_path):
    hydra_run("lr=0.01", "guard.stop.patience=7")
    (saved,) = tmp_path.rglob(".hydra/config.yaml")
    text = saved.read_text()
    assert "fingerprint" not in text
    kept = yaml.safe_load(text)
    assert kept["guard"]["stop"]["patience"] == 7
    assert kept["ledger"] == "sqlite:///${hydra:runtime.cwd}/holdout.db"
    printed = hydra_run(f"--config-dir={saved.parent}", "--config-name=config", "seed=3")
    assert "run 2 (seed 3, lr 0.01)" in printed


@pytest.mark.slow
def test_the_command_of_the_page_runs(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "train_hydra.py"), "--multirun"]
    command += ["lr=0.001,0.002", "max_epochs=2"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    assert "3 of 5 runs left" in found.stdout
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["holdout.db"]
