"""A sealed sweep: the study reads a display, the holdout is silent until it is closed."""

from contextlib import suppress
from pathlib import Path

import optuna
import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import (
    HoldoutClosedError,
    HoldoutError,
    HoldoutWarning,
    InvalidArgumentError,
)
from torch_holdout.holdout.results import Answer
from torch_holdout.ledger import verify
from torch_holdout.tuning.optuna import PRUNED, SealedTrial, claim, closed_study, ranking, sharing
from torch_holdout.tuning.optuna.sealed import SEALED

from support.builders.guarded import (
    NAMESPACES,
    data,
    guard_class,
    network,
    package,
    trainer,
    value_on,
)
from support.builders.sealed_sweeps import (
    best_of,
    counted_sums,
    display_net,
    display_objective,
    fit_with_display,
    plain_objective,
    quiet,
    sweep_account,
)

pytestmark = pytest.mark.filterwarnings("ignore")
STATE = optuna.trial.TrialState
PRUNERS = {
    "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=2),
    "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(max_resource=4),
}
LEVEL = 1e-4  # values are quantised before they are added


def states(study):
    return [trial.state for trial in study.trials]


def runs(account):
    return account._reading().summary.runs


def random_study(**options):
    return quiet(optuna.samplers.RandomSampler(seed=0), **options)


def tried_again(study, number):
    """Let Optuna try a trial again that stopped beating, as its own storage does."""
    trial = study.trials[number]
    study.tell(number, state=STATE.FAIL)
    optuna.storages.RetryHeartbeatStaleTrialCallback()(study, study.trials[trial.number])


class Killed(BaseException):
    """Takes the place of kill -9: nothing catches it."""


def killed(trial, account, counts):
    """Evaluate in a trial and leave it as kill -9 would."""
    with (
        suppress(Killed),
        sharing(trial, account, "val_acc", display="display_loss") as shared,
    ):
        for step, count in enumerate(counts):
            shared.evaluate(counted_sums(account, count), query=f"{trial.number} {step}", step=step)
        raise Killed


# With a Trainer


@pytest.mark.integration
@pytest.mark.parametrize("pruner", PRUNERS)
def test_sampler_and_pruner_read_the_display_and_closing_names_the_winner(pruner, tmp_path):
    account, raw = sweep_account(trials=8), {}
    study = quiet(pruner=PRUNERS[pruner]())
    study.optimize(display_objective(account, tmp_path, raw, epochs=4), n_trials=8)
    assert set(states(study)) == {STATE.COMPLETE, STATE.PRUNED}
    for trial in study.trials:
        assert len(trial.intermediate_values) == len(raw[trial.number])
        if trial.state is STATE.PRUNED:
            assert "by the study's pruner, which read 'display_loss'" in trial.user_attrs[PRUNED]
        else:
            assert trial.value == min(trial.intermediate_values.values())
    assert [run.state for run in runs(account)] == ["ended"] * 8
    account.close()
    ranked = ranking(study, account)
    assert {each.trial: each.value for each in ranked} == pytest.approx(best_of(raw), abs=LEVEL)
    assert ranked[0] == claim(study, account)
    assert ranked[0].value == pytest.approx(max(best_of(raw).values()), abs=LEVEL)
    assert all(each.low <= each.value <= each.high for each in ranked)
    for each in ranked:  # the kept weights are those of the evaluation
        net = network()
        net.load_state_dict(torch.load(each.weights, weights_only=True))
        assert value_on(net, data())["val_acc"] == pytest.approx(each.value, abs=LEVEL)


@pytest.mark.integration
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_trial_beyond_the_budget_is_pruned_and_the_study_stops(namespace, tmp_path):
    account, raw = sweep_account(trials=2), {}
    objective = display_objective(account, tmp_path, raw, epochs=1, namespace=namespace)
    study = quiet()
    study.optimize(objective, n_trials=20)
    assert states(study) == [STATE.COMPLETE] * 2
    study.optimize(objective, n_trials=20)  # taken up again
    assert states(study) == [STATE.COMPLETE] * 2 + [STATE.PRUNED]
    assert "(2 runs) is spent: the study stops" in study.trials[2].user_attrs[PRUNED]
    assert "holdout.close()" in study.trials[2].user_attrs[PRUNED]
    assert (study.trials[2].values, sorted(raw)) == (None, [0, 1])
    assert len(runs(account)) == 2


@pytest.mark.integration
def test_early_stopping_by_the_display_ends_trials_in_order(tmp_path):
    account, raw = sweep_account(trials=3), {}
    stopping = package(NAMESPACES[0]).callbacks.EarlyStopping
    objective = display_objective(
        account, tmp_path, raw, epochs=6,
        callbacks=lambda guard: [stopping("display_loss", patience=1, min_delta=0.5)],
    )  # fmt: skip
    study = quiet()
    study.optimize(objective, n_trials=3)
    assert states(study) == [STATE.COMPLETE] * 3
    assert {len(curve) for curve in raw.values()} == {2}  # no epoch is better by a half
    assert [run.state for run in runs(account)] == ["ended"] * 3


@pytest.mark.integration
def test_early_stopping_by_a_sealed_name_is_refused(tmp_path):
    account = sweep_account()
    stopping = package(NAMESPACES[0]).callbacks.EarlyStopping
    objective = display_objective(
        account, tmp_path, {}, callbacks=lambda guard: [stopping("val_acc", mode="max")]
    )
    with pytest.raises(InvalidArgumentError, match="Expected no callback to read 'val_acc'"):
        quiet().optimize(objective, n_trials=3)
    assert runs(account) == ()


@pytest.mark.integration
def test_patience_may_stop_trials_and_what_it_says_is_paid(tmp_path):
    account, raw = sweep_account(trials=3), {}
    guard = {"stop": th.Patience("val_acc", patience=1, min_delta=0.9)}
    study = quiet(pruner=optuna.pruners.NopPruner())
    study.optimize(display_objective(account, tmp_path, raw, epochs=6, guard=guard), n_trials=3)
    closing = account.close()
    assert [run.outcome.reason for run in closing.runs] == ["patience"] * 3
    last = [value for value in closing.values if value.run == 3]
    first = [value for value in closing.values if value.run == 1]
    assert last[0].high - last[0].low > first[0].high - first[0].low
    assert {each.trial for each in ranking(study, account)} == {"0", "1", "2"}


@pytest.mark.integration
def test_a_display_that_is_not_logged_is_missed_by_name(tmp_path, caplog):
    account = sweep_account()
    objective = display_objective(account, tmp_path, {}, display="display_acc")
    with pytest.raises(
        InvalidArgumentError, match=r"display 'display_acc' to be logged .* only \['display_loss'\]"
    ):
        quiet().optimize(objective, n_trials=3)
    assert [run.share for run in runs(account)] == [None]  # the failed trial gave its run up
    assert "unless this trial fails, which gives its run up, the run stays open" in caplog.text


@pytest.mark.integration
@pytest.mark.parametrize("reports", [True, False])
def test_spawned_ranks_are_refused_in_a_sentence(reports, tmp_path):
    account = sweep_account()

    def objective(trial):
        with sharing(trial, account, display="display_loss") as shared:
            own = guard_class(NAMESPACES[0])(account, prog_bar=False, public_dataloaders=(1,))
            callbacks = [own, shared.pruning(own)] if reports else [own]
            run = trainer(callbacks, strategy="ddp_spawn", devices=2, default_root_dir=tmp_path)
            fit_with_display(run, network())

    with pytest.raises(InvalidArgumentError, match=r"trials of one process.* has 2"):
        quiet().optimize(objective, n_trials=1)
    assert runs(account) == ()


@pytest.mark.integration
def test_a_trial_that_goes_on_from_its_checkpoint_goes_on_with_its_run(tmp_path):
    """The second try resumes the fit; another trial's checkpoint is no reason to share its run."""
    account = sweep_account(trials=2)
    study = quiet(pruner=optuna.pruners.NopPruner())
    saved = tmp_path / "saved.ckpt"

    class Saver(package(NAMESPACES[0]).Callback):
        def on_validation_end(self, trainer, pl_module):
            if trainer.current_epoch == 1 and not saved.exists():
                trainer.save_checkpoint(saved)
                raise Killed

    def objective(trial):
        with sharing(trial, account, display="display_loss") as shared:
            own = guard_class(NAMESPACES[0])(account, prog_bar=False, public_dataloaders=(1,))
            callbacks = [own, shared.pruning(own), Saver()]
            run = trainer(callbacks, max_epochs=4, default_root_dir=tmp_path)
            net = display_net(trial.suggest_float("lr", 1e-3, 1.0, log=True))
            fit_with_display(run, net, ckpt_path=saved if saved.exists() else None)
            return shared.value

    trial = study.ask()
    with pytest.raises(Killed):
        objective(trial)
    tried_again(study, 0)
    study.optimize(objective, n_trials=2)
    assert states(study) == [STATE.FAIL, STATE.COMPLETE, STATE.COMPLETE]
    made = [(run.state, run.share, run.evaluations) for run in runs(account)]
    assert made == [("ended", 1, 4), ("ended", 2, 2)]
    account.close()
    assert {each.trial for each in ranking(study, account)} == {"1", "2"}


# Killed, tried again, failed


def test_a_killed_trial_counts_once_and_its_next_try_takes_its_place():
    account, study = sweep_account(trials=2), quiet()
    killed(study.ask(), account, [30, 40, 50])
    assert [run.state for run in runs(account)] == ["open"]
    tried_again(study, 0)
    study.optimize(plain_objective(account), n_trials=3)
    assert states(study) == [STATE.FAIL, STATE.COMPLETE, STATE.COMPLETE]
    made = [(run.state, run.share, run.evaluations) for run in runs(account)]
    assert made == [("given_up", None, 3), ("ended", 1, 2), ("ended", 2, 2)]
    account.close()
    assert {each.trial for each in ranking(study, account)} == {"1", "2"}


def test_a_trial_killed_before_its_run_was_noted_is_found_by_its_label(monkeypatch):
    account, study = sweep_account(trials=1), quiet()

    def die(*_):
        raise Killed

    trial = study.ask()
    monkeypatch.setattr(trial, "set_user_attr", die)
    killed(trial, account, [30])
    assert study.trials[0].user_attrs == {}
    tried_again(study, 0)
    study.optimize(plain_objective(account), n_trials=1)
    assert states(study) == [STATE.FAIL, STATE.COMPLETE]
    assert [run.share for run in runs(account)] == [None, 1]


def test_a_plain_loop_goes_on_with_its_run_where_it_says_so():
    account, study = sweep_account(trials=1), quiet()
    killed(study.ask(), account, [30, 40])
    tried_again(study, 0)
    with sharing(study.ask(), account, "val_acc", display="display_loss") as shared:
        assert shared.resume()
        shared.evaluate(counted_sums(account, 60), query="third", step=2)
        shared.report(0.5, 2)
        study.tell(1, shared.value)
    assert [(run.state, run.evaluations) for run in runs(account)] == [("ended", 3)]
    closing = account.close()
    assert [value.value for value in closing.curve("val_acc")] == pytest.approx(
        [30 / 97, 40 / 97, 60 / 97], abs=LEVEL
    )
    assert claim(study, account).trial == "1"


def test_a_killed_trial_that_is_not_tried_again_counts_at_closing():
    account, study = sweep_account(trials=2), quiet()
    killed(study.ask(), account, [30, 90])
    study.optimize(plain_objective(account, values=lambda number, step: 20), n_trials=5)
    assert len(runs(account)) == 2
    account.close()
    won = claim(study, account)
    assert (won.trial, won.evaluation, won.weights) == ("0", 2, None)
    closed = closed_study(study, account)
    assert closed.best_trial.number == 0
    assert closed.best_trial.user_attrs["torch_holdout:state"] == "RUNNING"


def test_many_kills_and_tries_fit_the_budget():
    account, study = sweep_account(trials=4), quiet()
    for number in range(6):  # three of them are killed once more
        if number % 2 == 0:
            killed(study.ask(), account, [10 + number])
            tried_again(study, len(study.trials) - 1)
        else:
            study.optimize(plain_objective(account), n_trials=1)
    study.optimize(plain_objective(account), n_trials=9)
    finished = [trial for trial in study.trials if trial.state is STATE.COMPLETE]
    assert len(finished) == sum(run.share is not None for run in runs(account)) == 4
    assert "is spent" in study.trials[-1].user_attrs.get(PRUNED, "is spent")


def test_a_trial_that_fails_gives_its_run_up():
    account, study = sweep_account(trials=2), quiet()

    def reaches(trial, step):
        if trial.number < 5:
            raise MemoryError

    study.optimize(plain_objective(account, reaches=reaches), n_trials=9, catch=(MemoryError,))
    assert states(study)[:5] == [STATE.FAIL] * 5
    assert [run.share for run in runs(account)] == [None] * 5 + [1, 2]
    assert sum(state is STATE.COMPLETE for state in states(study)) == 2


def killed_after_its_run(study, account):
    """Evaluate in a trial whose run ends, and die before Optuna is told."""
    trial = study.ask()
    with sharing(trial, account, "val_acc", display="display_loss") as shared:
        shared.evaluate(counted_sums(account, 30), query=f"{trial.number}", step=0)
        shared.report(0.5, 0)


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_a_trial_killed_after_its_run_has_ended_counts_once(url, tmp_path):
    url = url if url == "memory://" else f"sqlite:///{tmp_path}/sweep.db"
    account, study = sweep_account(url, trials=2), quiet()
    killed_after_its_run(study, account)
    assert [run.state for run in runs(account)] == ["ended"]
    tried_again(study, 0)
    study.optimize(plain_objective(account), n_trials=2)
    assert states(study) == [STATE.FAIL, STATE.COMPLETE, STATE.COMPLETE]
    assert [(run.state, run.share) for run in runs(account)] == [
        ("given_up", None),
        ("ended", 1),
        ("ended", 2),
    ]
    if url != "memory://":
        assert verify(url).findings == []
    account.close()
    assert {each.trial for each in ranking(study, account)} == {"1", "2"}


def test_an_ended_run_that_was_compared_keeps_its_share():
    account, study = sweep_account(trials=3), quiet()
    study.optimize(plain_objective(account), n_trials=1)
    killed_after_its_run(study, account)
    account.winner()
    tried_again(study, 1)
    study.optimize(plain_objective(account), n_trials=1)
    assert [(run.state, run.share) for run in runs(account)] == [
        ("ended", 1),
        ("ended", 2),
        ("ended", 3),
    ]


def test_two_blocks_of_one_trial_leave_each_others_runs():
    account, study = sweep_account(trials=2), quiet()
    trial = study.ask()
    for part in range(2):
        with sharing(trial, account, "val_acc", display="display_loss") as shared:
            shared.evaluate(counted_sums(account, 30), query=f"part {part}", step=0)
            shared.report(0.5, step=part)
    assert [(run.state, run.share) for run in runs(account)] == [("ended", 1), ("ended", 2)]


def test_a_trial_that_fails_after_its_fit_gives_its_run_up(tmp_path):
    account, study = sweep_account(trials=1), quiet()

    def objective(trial):
        with sharing(trial, account, "val_acc", display="display_loss") as shared:
            with account.run() as run:
                run.evaluate(counted_sums(account, 30), query=f"{trial.number}")
            shared.report(0.5, 0)
            if trial.number == 0:
                raise MemoryError
            return shared.value

    study.optimize(objective, n_trials=2, catch=(MemoryError,))
    assert states(study) == [STATE.FAIL, STATE.COMPLETE]
    assert [(run.state, run.share) for run in runs(account)] == [("given_up", None), ("ended", 1)]


def test_a_trial_of_two_holdouts_makes_a_run_of_each():
    one, other = sweep_account(name="one"), sweep_account(name="other")
    study = quiet()
    trial, reads = study.ask(), {"display": "display_loss"}
    with (
        sharing(trial, one, "val_acc", **reads) as first,
        sharing(trial, other, "val_acc", **reads) as last,
    ):
        first.evaluate(counted_sums(one, 40), query="weights")
        last.evaluate(counted_sums(other, 60), query="weights")
        last.report(0.5, step=0)
        study.tell(trial, last.value)
    for account, right in ((one, 40), (other, 60)):
        assert [run.state for run in account.status().runs] == ["ended"]
        account.close()
        assert claim(study, account).value == pytest.approx(right / account.size)


def test_two_studies_of_one_name_do_not_take_each_others_runs():
    account = sweep_account(trials=3)
    first = quiet()
    killed(first.ask(), account, [30])
    second = quiet()
    killed(second.ask(), account, [])
    tried_again(second, 0)
    second.optimize(plain_objective(account), n_trials=1)
    assert [run.state for run in runs(account)] == ["open", "ended"]


def test_threads_of_one_study_share_the_runs(tmp_path):
    account = sweep_account(f"sqlite:///{tmp_path}/holdout.db", trials=6)
    study = quiet(pruner=optuna.pruners.NopPruner())  # the median's trials depend on the threads
    study.optimize(plain_objective(account), n_trials=30, n_jobs=3)
    assert [run.state for run in runs(account)] == ["ended"] * 6
    assert sum(state is STATE.COMPLETE for state in states(study)) == 6
    names = [run.label for run in runs(account)]
    assert len(set(names)) == 6
    assert set(states(study)) <= {STATE.COMPLETE, STATE.PRUNED}


# Without a display


SAMPLERS = optuna.samplers
FIXED = {
    "random": lambda: SAMPLERS.RandomSampler(seed=0),
    "quasi-random": lambda: SAMPLERS.QMCSampler(seed=0),
    "grid": lambda: SAMPLERS.GridSampler({"x": [0.1, 0.2, 0.5, 0.7]}),
    "partly fixed": lambda: SAMPLERS.PartialFixedSampler(
        {"x": 0.5}, SAMPLERS.RandomSampler(seed=0)
    ),
}
REACTING = {
    "TPE": lambda: SAMPLERS.TPESampler(),
    "NSGA": lambda: SAMPLERS.NSGAIISampler(),
    "partly fixed": lambda: SAMPLERS.PartialFixedSampler({"x": 0.5}, SAMPLERS.TPESampler()),
}


@pytest.mark.parametrize("sampler", FIXED)
def test_samplers_that_do_not_react_need_no_display(sampler):
    account, study = sweep_account(trials=4), quiet(FIXED[sampler]())
    study.optimize(plain_objective(account, display=None), n_trials=4)
    assert states(study) == [STATE.PRUNED] * 4
    assert {trial.user_attrs[PRUNED] for trial in study.trials} == {SEALED}
    assert all(trial.values is None for trial in study.trials)
    assert not any(trial.intermediate_values for trial in study.trials)
    account.close()
    expected = {str(n): max(17 * n, 17 * n + 5) / 97 for n in range(4)}
    found = {each.trial: each.value for each in ranking(study, account)}
    assert found == pytest.approx(expected, abs=LEVEL)


@pytest.mark.parametrize("sampler", REACTING)
def test_samplers_that_react_are_refused_without_a_display(sampler):
    account = sweep_account()
    with pytest.raises(InvalidArgumentError, match=r"display, or a sampler .* Nothing was charged"):
        quiet(REACTING[sampler]()).optimize(plain_objective(account, display=None), n_trials=1)
    assert runs(account) == ()


# Arguments and ends


def test_a_made_up_value_is_not_told_without_a_display():
    account, study = sweep_account(), random_study()

    def objective(trial):
        with sharing(trial, account) as shared:
            shared.evaluate(counted_sums(account, 30), query="a")
            return 0.99

    study.optimize(objective, n_trials=1)
    assert (states(study), study.trials[0].values) == ([STATE.PRUNED], None)


def test_what_is_wrong_is_said_before_anything_is_charged():
    account, live = sweep_account(), make_live()
    trial = quiet().ask()

    def enter(*arguments, **options):
        with sharing(trial, *arguments, **options):
            pytest.fail("the trial goes on")

    for options, words in [
        ({"display": "val_acc"}, "is a statistic of holdout 'val', which is sealed"),
        ({"display": 3}, "Expected `display` to name"),
        ({"display": []}, "Expected `display` to name"),
        ({"display": ["a", "b"]}, "at most one display for each"),
        ({"display": "a", "statistic": ["val_acc"]}, "Expected one statistic"),
        ({"display": "a", "statistic": "val_f1"}, "Expected one of the statistics"),
        ({"display": "a", "every": 3}, "every"),
    ]:
        with pytest.raises(InvalidArgumentError, match=words):
            enter(account, **options)
    with pytest.raises(InvalidArgumentError, match="display= for a sealed holdout only"):
        enter(live, display="display_loss")
    assert runs(account) == ()


def make_live():
    return sweep_account(mechanism=th.Ladder(step=0.01), statistics={"val_acc": th.ZeroOne()})


def test_reports_of_the_wrong_kind_are_refused():
    account = sweep_account()
    with sharing(quiet().ask(), account, display="display_loss") as shared:
        for wrong in (Answer(0.5, "release", 1), account.accumulator("val_acc"), "many", None):
            with pytest.raises(HoldoutError):
                shared.report(wrong, 0)
        with pytest.raises(InvalidArgumentError, match="a number for each"):
            shared.report([0.1, 0.2], 0)
        shared.report(torch.tensor(0.5), 0)
        assert shared.values == [0.5]
    loose = SealedTrial(quiet().ask(), account, "val_acc", "display_loss")
    with pytest.raises(InvalidArgumentError, match="Expected to be called inside"):
        loose.evaluate(counted_sums(account, 3), query="a")
    assert not loose.resume()
    assert repr(loose) == "SealedTrial(trial=0, statistic='val_acc', display=('display_loss',))"


def test_a_trial_without_a_display_has_nothing_to_report():
    account = sweep_account()

    def objective(trial):
        with sharing(trial, account) as shared:
            with pytest.raises(InvalidArgumentError, match="called without one"):
                shared.report(0.5, 0)
            with pytest.raises(InvalidArgumentError, match="second budget"):
                shared.pruning(guard_class(NAMESPACES[0])(sweep_account()))

    study = random_study()
    study.optimize(objective, n_trials=1)
    assert states(study) == [STATE.PRUNED]


def test_a_display_of_nan_only_prunes_the_trial():
    account, study = sweep_account(), quiet(pruner=optuna.pruners.NopPruner())

    def objective(trial):
        with sharing(trial, account, display="display_loss") as shared:
            shared.evaluate(counted_sums(account, 30), query="a")
            shared.report(float("nan"), 0)
            return shared.value

    study.optimize(objective, n_trials=1)
    assert states(study) == [STATE.PRUNED]
    assert "or was NaN" in study.trials[0].user_attrs[PRUNED]
    assert [run.state for run in runs(account)] == ["ended"]  # what was evaluated counts


def test_a_trial_that_reports_nothing_ends_the_study_and_costs_nothing():
    account, study = sweep_account(trials=4), quiet()

    def objective(trial):
        with sharing(trial, account, display="display_loss") as shared:
            shared.evaluate(counted_sums(account, 30), query="a")
            return shared.value

    with pytest.raises(InvalidArgumentError, match=r"call shared.report\(number, step\)"):
        study.optimize(objective, n_trials=4)
    assert states(study) == [STATE.FAIL]
    assert account.budget_left == 4


def test_an_objective_that_returns_the_sealed_metric_is_told_what_to_return():
    account, study, read = sweep_account(), quiet(), iter(("val_acc", "mine"))

    def objective(trial):
        with sharing(trial, account, display="display_loss") as shared:
            shared.evaluate(counted_sums(account, 30), query="a")
            shared.report(0.5, 0)
            return {"display_loss": 0.5}[next(read)]

    with pytest.raises(InvalidArgumentError, match=r"Return shared.value"):
        study.optimize(objective, n_trials=1)
    with pytest.raises(KeyError, match="mine"):  # another's error is left as it is
        study.optimize(objective, n_trials=1)


def test_the_trial_that_spends_the_budget_says_so_in_optunas_log(caplog):
    account, study = sweep_account(trials=2), quiet()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    optuna.logging.enable_propagation()
    try:
        study.optimize(plain_objective(account), n_trials=5)
    finally:
        optuna.logging.disable_propagation()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
    assert len(study.trials) == 2
    assert "(2 runs) is spent: the study stops" in caplog.text


def test_ask_and_tell_in_a_sealed_sweep():
    account, study = sweep_account(trials=1), quiet()
    trial = study.ask()
    with sharing(trial, account, display="display_loss") as shared:
        shared.evaluate(counted_sums(account, 30), query="a")
        shared.report(0.5, 0)
        study.tell(trial, shared.value)
    with (
        pytest.raises(optuna.TrialPruned, match=r"1 run\) is spent"),
        sharing(study.ask(), account, display="display_loss"),
    ):
        pytest.fail("the trial goes on")


def test_nothing_is_claimed_of_an_open_holdout_and_nothing_asked_of_a_closed_one():
    account, study = sweep_account(), quiet()
    study.optimize(plain_objective(account), n_trials=2)
    for action in (claim, ranking, closed_study):
        with pytest.raises(HoldoutError, match=r"holdout.close\(\) when the sweep is over"):
            action(study, account)
    assert account._reading().summary.closed == "open"
    account.close()
    with pytest.raises(HoldoutClosedError, match="was closed, for good"):
        study.optimize(plain_objective(account), n_trials=1)
    with pytest.raises(HoldoutError, match=r"nothing can be claimed. Pass the study, .* storage="):
        claim(optuna.create_study(), account)
    live = make_live()
    with pytest.raises(InvalidArgumentError, match="Expected a sealed holdout"):
        ranking(study, live)


def test_a_holdout_closed_while_a_trial_runs_ends_the_trial_with_a_sentence():
    account, study = sweep_account(), quiet()

    def reaches(trial, step):
        account.close()

    with pytest.raises(HoldoutClosedError, match="was closed"):
        study.optimize(plain_objective(account, reaches=reaches), n_trials=1)
    assert claim(study, account).trial == "0"


@pytest.mark.parametrize("exact", [False, True])
def test_noise_protects_what_a_sweep_would_rank_and_says_so_before(exact):
    account = sweep_account(mechanism=th.Sealed(evaluations=5, epsilon=1.0))
    study = quiet()
    with pytest.warns(HoldoutWarning, match=r"none can be ranked.*close\(exact=True\)") as told:
        study.optimize(plain_objective(account), n_trials=2)
    assert Path(told[0].filename).name == "sealed_sweeps.py"  # where the objective is
    account.close(exact=exact or None)
    if exact:
        assert {each.trial for each in ranking(study, account)} == {"0", "1"}
        return
    with pytest.raises(HoldoutError, match="no trial can be ranked"):
        ranking(study, account)
