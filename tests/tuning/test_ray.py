"""What a Ray trial reports, without a cluster."""

import math
from types import SimpleNamespace

import pandas
import pytest
import torch
import torch_holdout as th
from pyarrow.fs import LocalFileSystem
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError, PartialPassError
from torch_holdout.holdout.results import Answer
from torch_holdout.tuning import ray as tuning
from torch_holdout.tuning.ray import trials as ray_trials

from support.builders.guarded import SIZE as GUARDED_SIZE
from support.builders.guarded import data, guard_class, network, value_on
from support.builders.holdouts import ask, correct, make_holdout, sums_of
from support.programs.ray_sealed_trials import sealed_sweep_account
from support.programs.ray_trials import guarded_trial

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def told(monkeypatch, tmp_path):
    """What Tune is told, with the stamp of each checkpoint."""
    found = []

    class Context:
        def get_trial_dir(self):
            return str(tmp_path)

        def get_experiment_name(self):
            return "sweep"

        def get_trial_id(self):
            return "c4a2a_00001"

        def get_storage(self):
            folder = str(tmp_path / "trial")
            return SimpleNamespace(storage_filesystem=LocalFileSystem(), trial_fs_path=folder)

    def report(row, checkpoint=None):
        assert not (tmp_path / "trial").exists()  # weights are written when a run has ended
        found.append(row if checkpoint is None else {**row, "stamp": checkpoint.get_metadata()})

    monkeypatch.setattr(tuning.tune, "report", report)
    monkeypatch.setattr(tuning.tune, "get_context", Context)
    return found


def trial_of(body, tmp_path, *, display=None, every=True, **changes):
    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", **changes)
    run(body, account, display=display, every=every)
    return account


def run(body, account, **options):
    tuning.sharing(lambda config, holdout: body(holdout), account, **options)({})


def evaluate(holdout, run, epoch):
    sums = {"val_acc": sums_of(holdout, correct(30 + epoch, holdout.size))}
    return run.evaluate(sums, query=f"epoch {epoch}", step=f"epoch {epoch}")


def test_a_release_and_a_near_guess_are_told(told, tmp_path):
    def body(holdout):
        tuning.report({"val_acc": ask(holdout, 30, "a")})
        tuning.report({"val_acc": ask(holdout, 30, "b")})

    trial_of(body, tmp_path, mechanism=th.Thresholdout(threshold=0.2, sigma=0.0, guess="last"))
    assert [row["holdout/val_acc/is_release"] for row in told] == [True, False]
    assert [row["holdout/val_acc/position"] for row in told] == [1, 2]
    assert set(told[0]) == {
        "val_acc",
        "holdout/val_acc/is_release",
        "holdout/val_acc/position",
        "holdout/budget_left",
        "holdout/account",
    }


def test_a_trial_is_named(told, tmp_path):
    account = trial_of(lambda holdout: ask(holdout, 20, "a"), tmp_path)
    ledger = account._ledger
    assert [a.run for a in ledger.answers(ledger.accounts()["val"])] == ["sweep trial c4a2a_00001"]


def test_a_ladders_guess_is_told_one_step_worse_and_says_so(told, tmp_path):
    def body(holdout):
        best = ask(holdout, 90, "another trial's").value
        tuning.report({"val_acc": ask(holdout, 5, "b")})
        assert told[0]["val_acc"] == pytest.approx(best - 0.01)

    trial_of(body, tmp_path, mechanism=th.Ladder(step=0.01))
    (row,) = told
    assert row["holdout/val_acc/no_better"] is True
    assert row["holdout/val_acc/is_release"] is False


def test_a_trials_own_release_says_more_than_a_later_guess(told, tmp_path):
    def body(holdout):
        tuning.report({"val_acc": ask(holdout, 30, "a")})
        ask(holdout, 90, "another trial's")
        tuning.report({"val_acc": ask(holdout, 5, "b")})

    trial_of(body, tmp_path, mechanism=th.Ladder(step=0.01))
    assert told[0]["val_acc"] == told[1]["val_acc"]


def test_a_second_question_of_a_trial_is_refused(told, tmp_path):
    def body(holdout):
        tuning.report({"val_acc": ask(holdout, 30, "a")})
        tuning.report({"val_acc": ask(holdout, 30, "a")})  # the same question is no second one
        tuning.report({"val_acc": ask(holdout, 60, "b")})

    with pytest.raises(InvalidArgumentError, match="one question per trial"):
        trial_of(body, tmp_path, every=False)
    assert len(told) == 2


def test_no_answer_fails_the_trial_and_tells_tune_why(told, tmp_path):
    with pytest.raises(PartialPassError, match="but got None"):
        trial_of(lambda holdout: tuning.report({"val_acc": None}), tmp_path)
    (row,) = told
    assert "but got None" in row[ray_trials.PROBLEM]
    assert "val_acc" not in row


def test_a_trial_with_nothing_to_tell_says_so_once(told, tmp_path):
    def body(holdout):
        tuning.report({"val_acc": Answer(0.99, "exhausted", 0)})

    trial_of(body, tmp_path)
    (row,) = told
    assert math.isnan(row["val_acc"])
    assert (row["holdout/val_acc/is_release"], row["holdout/val_acc/position"]) == (False, -1)


def test_a_trial_that_reports_in_its_own_way_is_left_alone(told, tmp_path):
    trial_of(lambda holdout: ask(holdout, 30, "a"), tmp_path)
    assert told == []


def test_a_stale_value_ends_the_trial(told, tmp_path):
    def body(holdout):
        tuning.report({"val_acc": ask(holdout, 30, "a")})
        tuning.report({"val_acc": Answer(0.99, "exhausted", 0)})
        pytest.fail("the trial goes on")

    trial_of(body, tmp_path)
    assert len(told) == 1
    assert "is spent" in (tmp_path / ray_trials.EXHAUSTED).read_text()


def test_another_error_is_not_swallowed(told, tmp_path):
    def body(holdout):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        trial_of(body, tmp_path)
    with pytest.raises(InvalidArgumentError, match="called in a trial"):
        tuning.report({})


def test_a_second_account_made_in_a_trial_is_refused(told, tmp_path, monkeypatch):
    """As on a worker: a relative path is then in the trial's own working directory."""
    (tmp_path / "trial").mkdir()

    def body(holdout):
        monkeypatch.chdir(tmp_path / "trial")
        own = make_holdout("sqlite:///holdout.db")
        with pytest.raises(InvalidArgumentError, match="second budget"):
            tuning.reporting(guard_class("lightning.pytorch")(own), ["val_acc"])

    monkeypatch.chdir(tmp_path)
    trial_of(body, tmp_path)


def test_metrics_are_named(told, tmp_path):
    def body(holdout):
        guard = guard_class("lightning.pytorch")(holdout)
        for metrics in ([], None, {"val_acc": "acc"}):
            with pytest.raises(InvalidArgumentError, match="name the statistics"):
                tuning.reporting(guard, metrics)
        with pytest.raises(InvalidArgumentError, match="train_loss"):
            tuning.reporting(guard, ["train_loss"])
        callback = tuning.reporting(guard, "val_acc")

        class Trainer:
            world_size = 1
            callbacks = ()

        with pytest.raises(InvalidArgumentError, match="among the Trainer's callbacks"):
            callback.setup(Trainer(), None, "fit")
        Trainer.world_size = 2
        with pytest.raises(InvalidArgumentError, match="DDP is not supported"):
            callback.setup(Trainer(), None, "fit")

    trial_of(body, tmp_path)


SEALED = {"mechanism": th.Sealed(evaluations=5), "budget": 2}


def test_a_sealed_trial_tells_its_display_and_which_evaluation_goes_with_it(told, tmp_path):
    def body(holdout):
        with holdout.run() as run:
            for epoch in range(2):
                evaluate(holdout, run, epoch)
                checkpoint = tmp_path / f"{epoch}"
                checkpoint.mkdir()
                tuning.report({"display": epoch}, tuning.tune.Checkpoint(str(checkpoint)))
            tuning.report({"display": 2})  # without a new evaluation

    account = trial_of(body, tmp_path, display="display", **SEALED)
    (run,) = account.close().runs
    stamps = [{"holdout/run": run.id, "holdout/evaluation": number} for number in (1, 2)]
    assert [row.pop("stamp", None) for row in told] == [*stamps, None]
    assert [row["display"] for row in told] == [0.0, 1.0, 2.0]
    assert set(told[0]) == {"display", *stamps[0], "holdout/account", "holdout/sealed"}
    assert "holdout/run" not in told[2]
    assert run.name == "sweep trial c4a2a_00001"


def test_only_the_declared_display_is_told(told, tmp_path):
    def body(holdout):
        for values, advice in (
            ({"val_acc": 0.9}, "Leave out 'val_acc'"),
            ({"train_loss": 0.1}, r"Name .* display='train_loss'\)"),
        ):
            display = r"metrics of the display \['display'\]"
            with pytest.raises(InvalidArgumentError, match=f"{display}.*{advice}"):
                tuning.report(values)
        with pytest.raises(InvalidArgumentError, match="to be a number, but got Evaluation"):
            tuning.report({"display": evaluate(holdout, holdout.run(), 0)})
        guard = guard_class("lightning.pytorch")(holdout)
        with pytest.raises(InvalidArgumentError, match="metrics of the display"):
            tuning.reporting(guard, ["val_acc"])
        callback = tuning.reporting(guard)

        trainer = SimpleNamespace(callback_metrics={"train_loss": 0.1})
        with pytest.raises(InvalidArgumentError, match=r"logged \['train_loss'\]. Give the guard"):
            callback._tell(trainer)

    account = trial_of(body, tmp_path, display=["display"], **SEALED)
    assert told == []
    with pytest.raises(InvalidArgumentError, match=r"\['val_acc'\] are sealed until closing"):
        tuning.sharing(body, account, display="val_acc")
    live = make_holdout(f"sqlite:///{tmp_path}/live.db")
    with pytest.raises(InvalidArgumentError, match="answers with values"):
        tuning.sharing(body, live, display="display")


def test_a_sweep_that_closing_would_erase_is_said_to_be_one(tmp_path):
    noisy = {"mechanism": th.Sealed(evaluations=3, epsilon=1.0)}
    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", **{**SEALED, **noisy})
    with pytest.warns(HoldoutWarning, match="will erase the sums of all trials") as told:
        tuning.sharing(lambda config, holdout: None, account)
    assert told[0].filename == __file__


@pytest.mark.parametrize(("trial", "states"), [(None, ["open"] * 2), ("a", ["given_up", "open"])])
def test_without_a_tuner_no_run_takes_the_place_of_another(
    told, tmp_path, monkeypatch, trial, states
):
    monkeypatch.setattr(tuning.tune.get_context, "get_trial_id", lambda self: trial)
    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", **SEALED)
    for epoch in range(2):
        run(lambda holdout, epoch=epoch: evaluate(holdout, holdout.run(), epoch), account)
    assert [each.state for each in account.status().runs] == states


def test_a_trial_tried_again_after_its_run_has_ended_counts_once(told, tmp_path):
    """As if the first try had been killed before Tune knew that it was done."""

    def body(holdout):
        with holdout.run() as own:
            evaluate(holdout, own, 0)

    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", **{**SEALED, "budget": 1})
    for _ in range(3):
        run(body, account)
    states = [each.state for each in account.status().runs]
    assert states == ["given_up", "given_up", "ended"]
    assert account.budget_left == 0
    assert [len(account.close().curve("val_acc", number)) for number in (1, 2, 3)] == [0, 0, 1]


def test_a_trial_that_goes_on_and_has_nothing_left_to_do_keeps_its_ended_run(
    told, tmp_path, monkeypatch
):
    def body(holdout):
        with holdout.run() as own:
            for epoch in range(len(holdout.status().runs), 1):
                evaluate(holdout, own, epoch)

    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", **{**SEALED, "budget": 1})
    run(body, account)
    monkeypatch.setattr(tuning.tune, "get_checkpoint", lambda: "its last one")
    run(body, account)
    assert [each.state for each in account.status().runs] == ["ended"]
    assert not (tmp_path / ray_trials.EXHAUSTED).exists()


@pytest.mark.parametrize(("kept", "left"), [(False, 2), (True, 1)])
def test_a_failed_trial_keeps_its_run_only_if_it_can_go_on(told, tmp_path, kept, left):
    def body(holdout):
        with holdout.run() as run:
            evaluate(holdout, run, 0)
            if kept:
                (tmp_path / "checkpoint").mkdir()
                tuning.report({}, tuning.tune.Checkpoint(str(tmp_path / "checkpoint")))
            raise RuntimeError("out of memory")

    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", **SEALED)
    with pytest.raises(RuntimeError, match="out of memory"):
        run(body, account)
    assert account.budget_left == left


def test_a_trial_beyond_the_runs_of_the_budget_ends_before_it_trains(told, tmp_path):
    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", **{**SEALED, "budget": 1})
    with account.run(name="by hand") as by_hand:
        evaluate(account, by_hand, 0)
    run(lambda holdout: pytest.fail("the trial starts"), account, display="display")
    (row,) = told
    assert math.isnan(row["display"])
    assert "is spent" in (tmp_path / ray_trials.EXHAUSTED).read_text()


def test_a_guard_writes_weights_once_at_the_end_of_a_run_where_the_claim_finds_them(told, tmp_path):
    account = sealed_sweep_account(f"sqlite:///{tmp_path}/holdout.db", budget=1, size=GUARDED_SIZE)
    config = {"lr": 0.5, "epochs": 3, "save": False}
    run(lambda holdout: guarded_trial(config, holdout), account, display="display_acc")
    assert [row["holdout/evaluation"] for row in told] == [1, 2, 3]
    (file,) = (tmp_path / "trial").rglob("*.pt")
    assert "stamp" not in told[0]

    account.close()
    table = pandas.DataFrame([{**row, "training_iteration": n} for n, row in enumerate(told, 1)])
    result = SimpleNamespace(
        metrics={"trial_id": "c4a2a_00001"},
        metrics_dataframe=table,
        path=str(tmp_path / "trial"),
        filesystem=LocalFileSystem(),
    )
    best = tuning.claim([result], account, "val_acc")
    assert best.weights == str(file)
    net = network("lightning.pytorch")
    net.load_state_dict(torch.load(file))
    assert value_on(net, data())["val_acc"] == pytest.approx(best.value, abs=1e-4)
    points = tuning.front([result], account)
    assert best.value == max(point.values[0] for point in points)
    with pytest.raises(InvalidArgumentError, match="Expected the ResultGrid"):
        tuning.closed_results([result], account, "val_acc")
