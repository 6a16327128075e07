"""A study on a shared holdout: what it is told, how it ends, what may be claimed of it."""

import optuna
import pytest
import torch
import torch_holdout as th
from torch import nn
from torch_holdout.errors import (
    HoldoutError,
    HoldoutWarning,
    InvalidArgumentError,
    PartialPassError,
)
from torch_holdout.holdout.results import Answer
from torch_holdout.tuning.claims import FRESH
from torch_holdout.tuning.optuna import PRUNED, claim, reask, sharing
from torch_holdout.tuning.optuna.studies import GUESSED

from support.builders.guarded import (
    NAMESPACES,
    fit,
    guard_class,
    holdout,
    loader,
    network,
    trainer,
)
from support.builders.holdouts import ask, make_holdout
from support.builders.mechanisms import MECHANISMS
from support.builders.sweeps import (
    ACCURACY,
    EVERYTHING,
    counted_objective,
    fit_loosely,
    lightning_objective,
    quiet_study,
    shared_account,
)
from support.oracles.leaks import raw_hits

LAST = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")
STATE = optuna.trial.TrialState


def published(account):
    return {interval.value for interval in account.intervals()}


def told(study):
    return {value for trial in study.trials for value in trial.intermediate_values.values()}


def single(study, account, body, **options):
    """Run one trial whose objective is ``body(trial, shared)``."""
    options = {"every": True, **options}

    def objective(trial):
        with sharing(trial, account, **options) as shared:
            return body(trial, shared)

    study.optimize(objective, n_trials=1)
    return study.trials[-1]


# Lightning


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_study_stops_at_the_budget_and_claims_a_release(namespace, tmp_path):
    account = shared_account(f"sqlite:///{tmp_path}/holdout.db", budget=5)
    study = quiet_study(pruner=optuna.pruners.NopPruner())
    study.optimize(lightning_objective(account, namespace, epochs=2), n_trials=20)
    assert account.status().releases == 5
    assert [trial.state for trial in study.trials] == [STATE.COMPLETE] * 3
    assert told(study) == published(account)
    last = [trial.intermediate_values[trial.last_step] for trial in study.trials]
    assert [trial.value for trial in study.trials] == last
    found = claim(study, account)
    assert found.value == max(published(account)) >= study.best_value
    assert found.low < found.value < found.high


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", ["stop", "freeze", "raise"])
def test_a_trial_that_meets_exhaustion_is_pruned_with_its_last_answer(policy, tmp_path):
    account = shared_account(f"sqlite:///{tmp_path}/holdout.db", budget=3)

    def other_worker_takes_the_rest(net):
        if net.current_epoch == 1:
            ask(account, 11, "rival", fresh=True)
            ask(account, 12, "rival", fresh=True)

    study = quiet_study(pruner=optuna.pruners.NopPruner())

    def objective(trial):
        with sharing(trial, account, every=True) as shared:
            net = network(
                validation_step=lambda self, batch, _: {
                    "val_acc": self(batch[0]).argmax(1) == batch[1]
                },
                on_train_epoch_start=other_worker_takes_the_rest,
            )
            own = guard_class(NAMESPACES[0])(account, prog_bar=False, on_exhausted=policy)
            fit_loosely(trainer([own, shared.pruning(own)], max_epochs=4), net)
            return shared.value

    study.optimize(objective, n_trials=9)
    (trial,) = study.trials
    assert trial.state is STATE.PRUNED
    assert list(trial.intermediate_values) == [0]  # the stale second value is not there
    assert trial.value == trial.intermediate_values[0] == claim(study, account).value


@pytest.mark.filterwarnings("ignore")
def test_a_pruner_reads_published_values_and_nothing_raw_reaches_the_study(tmp_path):
    account = shared_account(f"sqlite:///{tmp_path}/holdout.db", budget=30)
    storage = tmp_path / "study.db"
    study = quiet_study(
        f"sqlite:///{storage}",
        pruner=optuna.pruners.ThresholdPruner(lower=2.0),  # prunes whatever it is told
    )
    raw = 0.5 + 1 / 3  # no grid point: whatever is published differs from it

    def validation_step(self, batch, _):
        return {"val_acc": raw + 0 * batch[0][:, 0]}

    def objective(trial):
        with sharing(trial, account, every=True) as shared:
            own = guard_class(NAMESPACES[0])(account, prog_bar=False)
            net = network(validation_step=validation_step)
            fit(trainer([own, shared.pruning(own)], max_epochs=3), net)
            return shared.value

    study.optimize(objective, n_trials=3)
    assert [trial.state for trial in study.trials] == [STATE.PRUNED] * 3
    assert account.status().queries == 3  # pruned after the first answer
    assert told(study) <= published(account)
    assert all("read a released value" in trial.user_attrs[PRUNED] for trial in study.trials)
    for file in tmp_path.iterdir():
        assert raw_hits(file.read_bytes(), [raw]) == [], file
    for trial in study.trials:
        everything = [trial.values, trial.user_attrs, trial.system_attrs, trial.params]
        assert raw_hits([*everything, dict(trial.intermediate_values)], [raw]) == []


@pytest.mark.filterwarnings("ignore")
def test_twin_that_reports_a_raw_mean_is_caught(tmp_path):
    study = quiet_study(f"sqlite:///{tmp_path}/study.db")
    raw = 0.5 + 1 / 3
    study.optimize(lambda trial: trial.report(raw, 0) or raw, n_trials=1)
    assert raw_hits((tmp_path / "study.db").read_bytes(), [raw])
    assert raw_hits(dict(study.trials[0].intermediate_values), [raw])


@pytest.mark.filterwarnings("ignore")
def test_several_validations_of_an_epoch_are_several_steps(tmp_path):
    account = shared_account("memory://", budget=30)
    study = quiet_study(pruner=optuna.pruners.NopPruner())
    objective = lightning_objective(account, epochs=2, val_check_interval=2)
    study.optimize(objective, n_trials=1)
    assert list(study.trials[0].intermediate_values) == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_the_callback_wants_its_guard_on_the_same_account_and_one_process():
    account = shared_account("memory://")
    study = quiet_study()

    def body(trial, shared):
        own = guard_class(NAMESPACES[0])(account, prog_bar=False)
        other = guard_class(NAMESPACES[0])(shared_account("memory://"), prog_bar=False)
        with pytest.raises(InvalidArgumentError, match="second budget"):
            shared.pruning(other)
        with pytest.raises(InvalidArgumentError, match="among the Trainer's callbacks"):
            fit(trainer([shared.pruning(own)]), network())

        class Many:
            world_size = 2

        with pytest.raises(InvalidArgumentError, match="DDP is not supported"):
            shared.pruning(own).setup(Many(), None, "fit")
        raise optuna.TrialPruned

    single(study, account, body)
    assert account.status().queries == 0


# Plain loops


def test_a_plain_loop_through_the_metric():
    account = make_holdout(mechanism=EVERYTHING, budget=3)
    study = quiet_study(pruner=optuna.pruners.NopPruner())

    def objective(trial):
        with sharing(trial, account, every=True) as shared:
            model = nn.Linear(1, 1).eval()
            metric = th.ReusableHoldoutMetric(account, "val_acc", model=model)
            for step in range(2):
                nn.init.constant_(model.weight, trial.suggest_float("x", 0, 1) + step)
                metric.reset()
                metric.update(torch.arange(50) % 2, torch.arange(50) % 3)
                metric.compute()
                shared.report(metric.answer, step)
            return shared.value

    study.optimize(objective, n_trials=10)
    assert account.status().releases == 3
    assert [t.state for t in study.trials] == [STATE.COMPLETE, STATE.PRUNED]
    assert told(study) == published(account)


def test_threads_of_one_study_share_the_budget(tmp_path):
    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", mechanism=EVERYTHING, budget=7)
    study = quiet_study(pruner=optuna.pruners.NopPruner())
    study.optimize(counted_objective(account), n_trials=30, n_jobs=3)
    assert account.status().releases == 7
    assert sum(len(trial.intermediate_values) for trial in study.trials) == 7
    assert {trial.state for trial in study.trials} <= {STATE.COMPLETE, STATE.PRUNED}
    assert len(study.trials) < 10


def test_exhaustion_before_the_first_trial_stops_the_study():
    account = make_holdout(mechanism=EVERYTHING, budget=1)
    ask(account, 25, "earlier")
    study = quiet_study()
    study.optimize(counted_objective(account), n_trials=10)
    (trial,) = study.trials
    assert (trial.state, trial.value) == (STATE.PRUNED, None)
    assert "is spent: the study stops" in trial.user_attrs[PRUNED]
    with pytest.raises(HoldoutError, match="nothing can be claimed"):
        claim(study, account)


def test_a_stale_value_is_never_told():
    account = make_holdout(mechanism=EVERYTHING)
    study = quiet_study()

    def body(trial, shared):
        shared.report(ask(account, 30, "a"), 0)
        shared.report(Answer(0.99, "exhausted", 0), 1)
        return pytest.fail("the trial goes on")

    trial = single(study, account, body)
    assert trial.state is STATE.PRUNED
    assert list(trial.intermediate_values) == [0]
    assert "at step 1 is stale" in trial.user_attrs[PRUNED]


def test_a_trial_without_an_answer_is_pruned_and_says_so():
    with pytest.warns(HoldoutWarning, match="Trial 0: The holdout published no value"):
        trial = single(quiet_study(), make_holdout(), lambda _, shared: shared.value)
    assert (trial.state, trial.value) == (STATE.PRUNED, None)
    assert "published no value" in trial.user_attrs[PRUNED]


def test_no_answer_is_refused():
    with pytest.raises(PartialPassError, match=r"but got None: no pass .*compute\(\)"):
        single(quiet_study(), make_holdout(), lambda _, shared: shared.report(None, 0))


@pytest.mark.parametrize("reports", [True, False])
def test_a_plain_loop_over_a_wrong_loader_stops_at_the_first_trial(reports):
    account = make_holdout(mechanism=EVERYTHING)
    study = quiet_study()

    def objective(trial):
        with sharing(trial, account, every=True) as shared:
            metric = th.ReusableHoldoutMetric(account, "val_acc")
            metric.update(torch.arange(40) % 2, torch.arange(40) % 3)  # ten are missing
            metric.compute()
            if reports:
                shared.report(metric.answer, 0)
            return shared.value

    with (
        pytest.warns(HoldoutWarning, match="all 50 examples"),
        pytest.raises(PartialPassError, match="all 50 examples of holdout 'val', each once"),
    ):
        study.optimize(objective, n_trials=20)
    assert [trial.state for trial in study.trials] == [STATE.FAIL]
    assert account.status().queries == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("sanity", [2, 0])
def test_a_study_with_a_wrong_loader_stops_at_its_first_trial(namespace, sanity):
    account = holdout(size=96, mechanism=EVERYTHING, statistics=ACCURACY)
    study = quiet_study()
    objective = lightning_objective(account, namespace, num_sanity_val_steps=sanity)
    with pytest.raises(PartialPassError, match=r"all 96 examples .* its loader has 97 examples"):
        study.optimize(objective, n_trials=20)
    assert [trial.state for trial in study.trials] == [STATE.FAIL]
    assert account.status().queries == 0


@pytest.mark.parametrize("inside", [True, False])
def test_a_problem_of_an_earlier_pass_is_no_reason_later(inside):
    account = make_holdout(mechanism=EVERYTHING)
    metric = th.ReusableHoldoutMetric(account, "val_acc")

    def partial(trial, shared):
        metric.update(torch.zeros(3).bool())
        with pytest.warns(HoldoutWarning):
            metric.compute()
        metric.reset()
        if inside:
            metric.update(torch.zeros(50).bool())
            metric.compute()
            shared.report(None, 0)

    if not inside:
        partial(None, None)
        partial = lambda _, shared: shared.report(None, 0)  # noqa: E731
    with pytest.raises(PartialPassError, match="no pass has asked"):
        single(quiet_study(), account, partial)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_spawned_ranks_get_the_documented_refusal(namespace):
    account = shared_account("memory://")

    def body(trial, shared):
        own = guard_class(namespace)(account, prog_bar=False)
        run = trainer([own, shared.pruning(own)], namespace, strategy="ddp_spawn", devices=2)
        fit_loosely(run, network(namespace))

    with pytest.raises(InvalidArgumentError, match=r"trials of one process.* has 2") as caught:
        single(quiet_study(), account, body)
    assert caught.value.__suppress_context__  # of the failed pickling


def test_a_guess_is_told_but_never_claimed():
    account = make_holdout(mechanism=LAST)
    study = quiet_study(pruner=optuna.pruners.NopPruner())
    counts = iter([20, 40, 41])

    def body(trial, shared):
        shared.report(ask(account, next(counts), f"{trial.number}"), 0)
        return shared.value

    for _ in range(3):
        single(study, account, body)
    kinds = [interval.kind for interval in account.intervals()]
    assert kinds == ["release", "release", "guess"]
    assert study.trials[2].value == study.trials[1].value
    assert (claim(study, account).trial, claim(study, account).position) == ("1", 2)


def test_a_training_value_returned_as_a_guess_is_never_claimed():
    train = th.Thresholdout(threshold=0.05, sigma=0.0, guess="train")
    account = make_holdout(mechanism=train)
    study = quiet_study(pruner=optuna.pruners.NopPruner())
    cases = iter([(20, 0.9), (45, 0.93)])

    def body(trial, shared):
        count, guess = next(cases)
        shared.report(ask(account, count, f"{trial.number}", guess=guess), 0)
        return shared.value

    for _ in range(2):
        single(study, account, body)
    assert study.best_value == pytest.approx(0.93)  # the training value
    found = claim(study, account)
    assert (found.trial, found.position) == ("0", 1)
    assert found.value == pytest.approx(0.4, abs=0.02)


def test_a_ladders_guess_makes_no_trial_look_like_the_best():
    account = make_holdout(mechanism=th.Ladder(step=0.01))
    study = quiet_study(pruner=optuna.pruners.NopPruner())
    counts = iter([40, 5])

    def body(trial, shared):
        shared.report(ask(account, next(counts), f"{trial.number}"), 0)
        return shared.value

    for _ in range(2):
        single(study, account, body)
    best, other = study.trials
    assert (best.state, other.state) == (STATE.COMPLETE, STATE.COMPLETE)
    assert other.value == pytest.approx(best.value - 0.01)
    assert "not better than the best so far by more than a step" in other.user_attrs[GUESSED]
    assert GUESSED not in best.user_attrs
    assert claim(study, account).trial == "0"


def test_a_ladders_guess_does_not_replace_the_trials_own_release():
    account = make_holdout(mechanism=th.Ladder(step=0.01))
    study = quiet_study(pruner=optuna.pruners.ThresholdPruner(lower=0.85))
    counts = iter([45, 5, 6])

    def body(trial, shared):
        for step in range(3):
            shared.report(ask(account, next(counts), f"{step}"), step)
        return shared.value

    trial = single(study, account, body)
    assert (trial.state, trial.value) == (STATE.COMPLETE, claim(study, account).value)
    assert trial.intermediate_values == {0: trial.value}


def test_a_guess_is_told_within_the_range_and_prunes_nobody():
    account = make_holdout(mechanism=th.Ladder(step=0.5))
    study = quiet_study(pruner=optuna.pruners.ThresholdPruner(lower=0.1))
    counts = iter([20, 5])

    def body(trial, shared):
        shared.report(ask(account, next(counts), f"{trial.number}"), 0)
        return shared.value

    single(study, account, body)
    trial = single(study, account, body)
    assert (trial.state, trial.value) == (STATE.COMPLETE, 0.0)


# One question a trial


@pytest.mark.parametrize("every", [False, True])
def test_a_trial_that_asks_once_is_not_pruned_by_its_last_word(every):
    account = make_holdout(mechanism=th.Thresholdout(threshold=0.01, sigma=0.0, guess="last"))
    study = quiet_study(pruner=optuna.pruners.ThresholdPruner(lower=2.0))  # prunes any value

    def objective(trial):
        with sharing(trial, account, every=every) as shared:
            shared.report(ask(account, 30, "a"), 0)
            return shared.value

    study.optimize(objective, n_trials=1)
    assert study.trials[0].state is (STATE.PRUNED if every else STATE.COMPLETE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize(
    "options",
    [
        {"max_epochs": 2},
        {"max_epochs": 1, "val_check_interval": 2},
        {"max_epochs": -1, "max_steps": 9},
        {
            "max_epochs": None,
            "check_val_every_n_epoch": None,
            "val_check_interval": 3,
            "max_steps": 9,
        },
    ],
    ids=["epochs", "within an epoch", "steps", "by batches"],
)
def test_a_fit_that_would_ask_more_than_once_is_refused(namespace, options):
    account, study = shared_account("memory://", budget=9), quiet_study()

    def body(trial, shared):
        own = guard_class(namespace)(account, prog_bar=False)
        fit_loosely(
            trainer([own, shared.pruning(own)], namespace, **options), accuracy_net(namespace)
        )

    with pytest.raises(InvalidArgumentError, match=r"one question per trial.*trainer\.validate"):
        single(study, account, body, every=False)
    told_at_once = options.get("max_epochs", 0) not in (-1, None)
    assert account.status().queries == (0 if told_at_once else 1)


def accuracy_net(namespace):
    def step(self, batch, _):
        return {"val_acc": self(batch[0]).argmax(1) == batch[1]}

    return network(namespace, validation_step=step)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.filterwarnings("error::torch_holdout.errors.HoldoutWarning")
@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("way", ["last epoch", "validate", "both"])
def test_a_trial_asks_once_when_it_is_trained(namespace, way):
    account, study = shared_account("memory://", budget=9), quiet_study()

    def body(trial, shared):
        own = guard_class(namespace)(account, prog_bar=False)
        every = 1 if way == "validate" else 3
        run = trainer(
            [own, shared.pruning(own)], namespace, max_epochs=3, check_val_every_n_epoch=every
        )
        net = accuracy_net(namespace)
        if way == "validate":
            run.fit(net, loader(drop_last=True))
        else:
            fit_loosely(run, net)
        if way != "last epoch":
            run.validate(net, loader(), verbose=False)  # after a fit that asked: a repeat
        return shared.value

    for _ in range(2):
        single(study, account, body, every=False)
    assert [trial.state for trial in study.trials] == [STATE.COMPLETE] * 2
    assert account.status().queries == 2
    assert {trial.value for trial in study.trials} == published(account)


def test_a_second_answer_in_a_plain_loop_is_refused():
    account, study = make_holdout(mechanism=EVERYTHING), quiet_study()

    def body(trial, shared):
        first = ask(account, 30, "a")
        shared.report(first, 0)
        shared.report(ask(account, 30, "a"), 1)  # a repeat is no question
        shared.report(ask(account, 20, "b"), 2)

    with pytest.raises(InvalidArgumentError, match="the second answer about 'val_acc'"):
        single(study, account, body, every=False)


def test_several_objectives_are_told_together():
    account = make_holdout(
        mechanism=EVERYTHING,
        budget=9,
        statistics={"val_acc": th.ZeroOne(), "val_loss": th.BoundedMean(0, 1)},
    )
    study = optuna.create_study(directions=["maximize", "minimize"])

    def objective(trial):
        with sharing(trial, account, ["val_acc", "val_loss"]) as shared:
            count = 10 + 5 * trial.number
            sums = {}
            for name in account.statistics:
                sums[name] = account.accumulator(name)
                right = torch.arange(50) < count
                sums[name].update(right if name == "val_acc" else 1.0 - right.double())
            shared.report(account.release_all(sums, query=f"{trial.number}"), 0)
            return shared.values

    study.optimize(objective, n_trials=3)
    assert [trial.state for trial in study.trials] == [STATE.COMPLETE] * 3
    told_values = {value for trial in study.trials for value in trial.values}
    assert told_values == published(account)
    for name in account.statistics:
        found = claim(study, account, name)
        assert (found.trial, found.statistic) == ("2", name)
    with (
        pytest.raises(InvalidArgumentError, match=r"\['maximize', 'minimize'\]"),
        sharing(quiet_study().ask(), account, ["val_acc", "val_loss"]),
    ):
        pass


def test_an_answer_about_another_statistic_is_refused():
    account = make_holdout(
        mechanism=EVERYTHING, statistics={"val_acc": th.ZeroOne(), "val_loss": th.BoundedMean(0, 1)}
    )
    study = quiet_study()
    with (
        pytest.raises(InvalidArgumentError, match="which the study is about"),
        sharing(study.ask(), account, "val_acc") as shared,
    ):
        shared.report({"val_loss": Answer(0.5, "release", 1, "release", 1)}, 0)


def test_a_failed_trial_gets_no_new_noise_when_it_is_tried_again():
    account = make_holdout(mechanism=EVERYTHING)
    study = quiet_study(pruner=optuna.pruners.NopPruner())
    told_values, failing = [], iter([True, False])

    def body(trial, shared):
        answer = ask(account, 30, "the same weights")
        shared.report(answer, 0)
        told_values.append((answer.value, answer.kind))
        if next(failing):
            raise RuntimeError("out of memory")
        return shared.value

    with pytest.raises(RuntimeError, match="out of memory"):
        single(study, account, body)
    single(study, account, body)
    (first, kind), (again, kind_again) = told_values
    assert (kind, kind_again, first) == ("release", "repeat", again)
    assert account.status().releases == 1
    assert claim(study, account).trial == "1"  # the failed one left no model


def test_ask_and_tell_has_no_loop_to_stop():
    account = make_holdout(mechanism=EVERYTHING, budget=1)
    study = quiet_study()
    trial = study.ask()
    with sharing(trial, account, every=True) as shared:
        shared.report(ask(account, 30, "a"), 0)
        study.tell(trial, shared.value)
    with pytest.raises(optuna.TrialPruned, match="is spent"), sharing(study.ask(), account):
        pass


def test_the_direction_must_fit_the_statistic():
    account = make_holdout()
    for options in ({"direction": "minimize"}, {"directions": ["maximize", "maximize"]}):
        study = optuna.create_study(**options)
        with (
            pytest.raises(InvalidArgumentError, match="direction 'maximize'"),
            sharing(study.ask(), account),
        ):
            pass
    with (
        pytest.raises(InvalidArgumentError, match="val_acc"),
        sharing(quiet_study().ask(), account, "val_loss"),
    ):
        pass


# Claims


def claimed_model(account, weight=0.5):
    """A study of one trial, its model and the loader of the holdout."""
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    inputs = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    batches = [(inputs[:30], torch.zeros(30).long()), (inputs[30:], torch.zeros(20).long())]
    study = quiet_study()

    def body(trial, shared):
        metric = th.ReusableHoldoutMetric(account, "val_acc", model=model.eval())
        for x, y in batches:
            metric.update(model(x), y)
            if account.mechanism.wants_guess():
                metric.update_train(y, y)  # all right: far off, so the holdout is read
        metric.compute()
        shared.report(metric.answer, 4)
        return shared.value

    single(study, account, body)
    return study, model, batches


def test_the_winner_is_asked_again_and_the_ledger_says_so():
    account = make_holdout(mechanism=EVERYTHING)
    study, model, batches = claimed_model(account)
    first = claim(study, account)
    again = reask(first, account, model.train(), batches)
    assert model.training
    assert (again.trial, again.step, again.fresh) == ("0", 4, True)
    assert again.position == 2
    assert account.status().releases == 2
    assert str(again).endswith(FRESH)
    assert not first.fresh
    assert FRESH not in str(first)
    with account._ledger._transaction(reads_only=True) as connection:
        rows = connection.exec_driver_sql("SELECT query, attempt FROM th_queries").all()
    assert [attempt for _, attempt in rows] == [0, 1]
    assert rows[0][0] == rows[1][0]


@pytest.mark.parametrize("rule", [rule for rule in MECHANISMS if "ladder" not in rule])
def test_a_winner_is_asked_again_whatever_the_mechanism(rule):
    account = make_holdout(mechanism=MECHANISMS[rule], seed=3)
    study, model, batches = claimed_model(account)
    assert reask(claim(study, account), account, model, batches).position == 2


def test_another_model_is_not_the_winner_and_is_not_charged():
    account = make_holdout(mechanism=EVERYTHING)
    study, model, batches = claimed_model(account)
    with torch.no_grad():
        model.weight.add_(1e-3)
    with pytest.raises(InvalidArgumentError, match=r"trial 0 after step 4.*Nothing was charged"):
        reask(claim(study, account), account, model, batches)
    assert account.status().queries == 1


def test_no_release_left_for_the_winner():
    account = make_holdout(mechanism=EVERYTHING, budget=1)
    study, model, batches = claimed_model(account)
    with pytest.raises(th.BudgetExhaustedError, match="one more next time"):
        reask(claim(study, account), account, model, batches)


def test_a_ladder_cannot_be_asked_again():
    account = make_holdout(mechanism=th.Ladder(step=0.01))
    study, model, batches = claimed_model(account)
    with pytest.raises(InvalidArgumentError, match="only improvements"):
        reask(claim(study, account), account, model, batches)


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_module_is_asked_again_through_its_own_step():
    account = shared_account("memory://", budget=30)
    study, kept = quiet_study(pruner=optuna.pruners.NopPruner()), {}

    def objective(trial):
        with sharing(trial, account, every=True) as shared:
            net = kept["net"] = network(
                validation_step=lambda self, batch, _: {
                    "val_acc": self(batch[0]).argmax(1) == batch[1]
                }
            )
            own = guard_class(NAMESPACES[0])(account, prog_bar=False)
            fit(trainer([own, shared.pruning(own)], max_epochs=1), net)
            return shared.value

    study.optimize(objective, n_trials=1)
    again = reask(claim(study, account), account, kept["net"], loader())
    assert again.fresh
    assert account.status().releases == 2


def test_an_edited_study_cannot_turn_anything_into_a_claim():
    account = make_holdout(mechanism=LAST)
    ask(account, 30, "a")
    ask(account, 31, "b")  # a guess
    study = quiet_study()
    for position in (2, 77):
        key = f"torch_holdout:val_acc:{position}"
        forged = {key: {"trial": len(study.trials), "step": 0}}
        study.add_trial(optuna.trial.create_trial(value=0.99, user_attrs=forged))
    with pytest.raises(HoldoutError, match="nothing can be claimed"):
        claim(study, account)


def test_a_study_of_one_account_claims_nothing_of_another():
    """Positions of two ledgers mean different queries: a pointer names its account."""
    poor, rich = make_holdout(mechanism=LAST), make_holdout(mechanism=LAST)
    study = quiet_study()

    def body(trial, shared):
        shared.report(ask(poor, 26, "a"), 0)
        trial.set_user_attr("torch_holdout:val_acc:note", "a user's own does no harm")
        return shared.value

    single(study, poor, body)
    ask(rich, 50, "b")
    assert claim(study, poor).value < 0.6
    with pytest.raises(HoldoutError, match="on this account"):
        claim(study, rich)
    found = claim(study, poor)
    with pytest.raises(InvalidArgumentError, match="another account's"):
        reask(found, rich, nn.Linear(1, 1), [])
