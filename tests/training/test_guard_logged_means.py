"""Modules that log means are guarded without an edit: their names go to the guard alone."""

import pytest
import torch
import torch_holdout as th
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler
from torch_holdout.errors import InvalidArgumentError, PartialPassError, UnguardedLogError
from torchmetrics import MaxMetric, MeanSquaredError, MetricCollection
from torchmetrics.classification import (
    BinaryAccuracy,
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassF1Score,
    MultilabelAccuracy,
)

from support.builders import foreign
from support.builders.foreign import BATCH, SIZE
from support.builders.guarded import (
    IN_A_TRAINER,
    NAMESPACES,
    data,
    fit,
    guard_class,
    package,
    trainer,
)
from support.builders.holdouts import make_holdout
from support.oracles.leaks import raw_hits, spy

pytestmark = IN_A_TRAINER
LOSS = {"val_loss": th.LoggedMean(0.0, 5.0, batch_size=BATCH)}
BOTH = {**LOSS, "val_acc": th.LoggedMean(0.0, 1.0, mode="max", kind="zero_one")}
EXACT = th.Thresholdout(threshold=0.0, sigma=0.0, guess="last")


def account(statistics=BOTH, **changes):
    facts = {"size": SIZE, "mechanism": EXACT, "budget": 50, "grid": SIZE * 65536}
    return make_holdout(**{"statistics": statistics, **facts, **changes})


def run(module, *callbacks, namespace=NAMESPACES[0], val=None, **options):
    train, own = foreign.loaders()
    found = trainer(list(callbacks), namespace, **{"max_epochs": 2, **options})
    return fit(found, module, train, own if val is None else val)


def seeded(build, *arguments, **options):
    torch.manual_seed(0)
    return build(*arguments, **options)


def logs(step, namespace=NAMESPACES[0], **attributes):
    """A module whose validation step is a function of it, its logits and its targets."""

    class Net(foreign.base(namespace)):
        def validation_step(self, batch, batch_idx):
            return step(self, self.layers(batch[0]), batch[1])

    net = Net()
    for name, value in attributes.items():
        setattr(net, name, value)
    return net


def mean_loss(net, logits, y):
    net.log("val_loss", functional.cross_entropy(logits, y))


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize(
    ("build", "options"),
    [
        (foreign.collection, {}),
        (foreign.collection, {"updates": True}),
        (foreign.template, {}),
    ],
    ids=["forward", "update", "metrics"],
)
def test_the_guarded_values_are_those_that_are_logged_without_a_guard(build, options, namespace):
    """Equal up to the levels of a batch; of the template, whose MeanMetric weighs batches alike."""
    plain = run(seeded(build, namespace, **options), namespace=namespace).callback_metrics
    holdout = account()
    guard = guard_class(namespace)(holdout)
    found = run(seeded(build, namespace, **options), guard, namespace=namespace).callback_metrics
    assert float(found["val_acc"]) == pytest.approx(float(plain["val_acc"]), abs=1e-6)
    loose = 0.05 if build is foreign.template else 5 / 65536
    assert float(found["val_loss"]) == pytest.approx(float(plain["val_loss"]), abs=loose)
    assert holdout.status().queries == 4
    closed = {value.statistic: value.value for value in holdout.close().values}  # the last epoch's
    assert closed["val_acc"] == pytest.approx(float(plain["val_acc"]), abs=1e-6)


def test_a_batch_of_a_mean_metric_counts_by_its_size():
    net = seeded(foreign.template, NAMESPACES[0])
    found = run(net, guard_class(NAMESPACES[0])(account()), max_epochs=1).callback_metrics
    net.eval()
    x, y = data(SIZE).tensors
    with torch.no_grad():
        mean = float(functional.cross_entropy(net.layers(x), y))
    assert float(found["val_loss"]) == pytest.approx(mean, abs=5 / 65536)


def test_the_metrics_are_left_as_they_were_and_hold_nothing():
    net = foreign.template(NAMESPACES[0])
    net.val_acc.update(torch.eye(3), torch.arange(3))  # of training examples, say
    seen = []

    class Look(package(NAMESPACES[0]).Callback):
        def on_validation_batch_end(self, trainer, pl_module, *_):
            seen.append((pl_module.val_loss.update_count, float(pl_module.val_acc.tp.sum())))
            seen.append((0 if pl_module.val_loss._forward_cache is None else 1, 3.0))

    run(net, guard_class(NAMESPACES[0])(account()), Look())
    assert set(seen) == {(0, 3.0)}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_nothing_of_a_registered_name_reaches_a_logger_or_a_callback(namespace, tmp_path):
    """Also on_step, the progress bar, a CSV logger and what hooks read after each batch."""
    pl, held = package(namespace), []

    class Everywhere(pl.Callback):
        def _look(self, trainer, *_):
            held.append({**trainer.callback_metrics, **trainer.logged_metrics})
            held.append(dict(trainer.progress_bar_metrics))
            held.append([repr(each) for each in trainer._results.values()])

        on_validation_batch_end = on_validation_end = on_train_batch_end = _look

    def everything(net, logits, y):
        net.log("val_loss", functional.cross_entropy(logits, y), on_step=True, on_epoch=True,
                prog_bar=True, logger=True, sync_dist=True)  # fmt: skip

    def once(guarded, folder):
        held.clear()
        net = seeded(logs, everything, namespace)
        mechanism = th.Thresholdout(threshold=0.02, sigma=0.01, guess="last")
        guard = guard_class(namespace)(account(LOSS, mechanism=mechanism, seed=0))
        run(
            net, spy(pl, held), Everywhere(), *([guard] if guarded else []),
            namespace=namespace, logger=pl.loggers.CSVLogger(folder), log_every_n_steps=1,
        )  # fmt: skip
        files = [path.read_text() for path in folder.rglob("*.csv")]
        return [*held, *files], raw_of(net)

    held_guarded, raw = once(True, tmp_path / "guarded")
    assert raw_hits(held_guarded, raw) == []
    held_plain, raw = once(False, tmp_path / "plain")
    assert raw_hits(held_plain, raw)


def raw_of(net):
    """The last epoch's raw means: of the batches, and of all."""
    net.eval()
    x, y = data(SIZE).tensors
    with torch.no_grad():
        values = functional.cross_entropy(net.layers(x), y, reduction="none")
    return [float(part.mean()) for part in (values, *values.split(BATCH))]


def test_some_statistics_are_returned_and_some_logged():
    def mixed(net, logits, y):
        net.log("val_loss", functional.cross_entropy(logits, y))
        return {"val_acc": logits.argmax(1) == y}

    holdout = account({**LOSS, "val_acc": th.ZeroOne()})
    found = run(logs(mixed), guard_class(NAMESPACES[0])(holdout))
    assert {"val_loss", "val_acc"} <= set(found.callback_metrics)
    assert holdout.status().queries == 4


def test_a_library_that_owns_its_trainer_is_guarded_by_a_callback_alone():
    for namespace in NAMESPACES:
        train, val = foreign.loaders()
        plain = foreign.Forecaster(namespace).fit(train, val)
        guard = guard_class(namespace)(account())
        found = foreign.Forecaster(namespace).fit(train, val, callbacks=[guard])
        assert found["val_loss"] == pytest.approx(plain["val_loss"], abs=5 / 65536)
        assert found["val_acc"] == pytest.approx(plain["val_acc"], abs=1e-6)
        assert found["holdout/releases"] == 4


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_sealed_account_stops_by_patience_and_shows_nothing(namespace):
    holdout = account(mechanism=th.Sealed(evaluations=20), budget=2, grid=None)
    guard = guard_class(namespace)(holdout, stop=th.Patience("val_loss", patience=2, min_delta=4.9))
    net = seeded(foreign.collection, namespace)
    found = run(net, guard, namespace=namespace, max_epochs=10)
    assert guard.outcome.reason == "patience"
    assert guard.outcome.evaluations == 3
    assert not [key for key in found.callback_metrics if key.startswith("val_")]
    closed = holdout.close()
    assert {value.statistic for value in closed.values} == {"val_loss", "val_acc"}


@pytest.mark.parametrize("updates", [False, True])
def test_other_metrics_of_a_collection_are_dropped_where_that_is_wanted(updates):
    """Both metrics share one state, of which the collection updates one only."""

    def step(net, logits, y):
        if updates:
            net.both.update(logits, y)
            net.log_dict(net.both)
        else:
            net.log_dict(net.both(logits, y))

    def built():
        metrics = {"f1": MulticlassF1Score(3), "acc": MulticlassAccuracy(3, average="micro")}
        return seeded(logs, step, both=MetricCollection(metrics, prefix="val_"))

    plain = run(built()).callback_metrics
    statistics = {"val_acc": BOTH["val_acc"]}
    text = refused(built(), "val_f1", UnguardedLogError, statistics=statistics)
    assert "unguarded='drop'" in text
    assert "public=" not in text  # a metric of the holdout's batches is not public
    net, holdout = built(), account(statistics)
    found = trainer([guard_class(NAMESPACES[0])(holdout, unguarded="drop")], max_epochs=2)
    with pytest.warns(th.HoldoutWarning, match="f1"):
        found.fit(net, *foreign.loaders())
    assert float(found.callback_metrics["val_acc"]) == pytest.approx(
        float(plain["val_acc"]), abs=1e-6
    )
    assert "val_f1" not in found.callback_metrics
    assert holdout.status().queries == 2
    assert [each.update_count for each in net.both.values()] == [0, 0]


def test_training_values_are_logged_by_the_same_step():
    """Guesses come in batches of any size."""
    mechanism = th.Thresholdout(threshold=0.9, sigma=0.0, guess="train")  # so they are answers
    guesses = DataLoader(data(SIZE, seed=3), batch_size=33)
    net = seeded(foreign.collection, NAMESPACES[0])
    guard = guard_class(NAMESPACES[0])(account(mechanism=mechanism), guess_dataloaders=guesses)
    run(net, guard, max_epochs=1)
    net.eval()
    x, y = data(SIZE, seed=3).tensors
    with torch.no_grad():
        logits = net.layers(x)
    for name, training in (
        ("val_loss", functional.cross_entropy(logits, y)),
        ("val_acc", (logits.argmax(1) == y).double().mean()),
    ):
        assert guard.answers[name].kind == "guess"
        assert guard.answers[name].value == pytest.approx(float(training), abs=5 / 65536)


def test_a_loop_of_ones_own():
    holdout, model = account(LOSS), nn.Linear(4, 3).eval()
    metric = th.ReusableHoldoutMetric(holdout, "val_loss", model=model)
    _, val = foreign.loaders()
    with torch.no_grad():
        for x, y in val:
            metric.update(functional.cross_entropy(model(x), y), len(y))
        x, y = data(SIZE).tensors
        mean = float(functional.cross_entropy(model(x), y))
    assert float(metric.compute()) == pytest.approx(mean, abs=5 / 65536)
    assert metric.answer.is_release


# ---- what is refused, before any charge


def refused(module, match, error=InvalidArgumentError, *, statistics=LOSS, guard=(), **options):
    holdout = account(statistics)
    with pytest.raises(error, match=match) as caught:
        run(module, guard_class(NAMESPACES[0])(holdout, **dict(guard)), **options)
    assert holdout.status().queries == 0
    return str(caught.value)


def test_a_name_that_is_never_logged_or_only_when_the_epoch_ends():
    refused(logs(lambda net, logits, y: None), r"to log \['val_loss'\] for each batch")

    class Late(foreign.base(NAMESPACES[0])):
        def validation_step(self, batch, batch_idx):
            return None

        def on_validation_epoch_end(self):
            self.log("val_loss", 1.0)

    refused(Late(), "end of the epoch is no batch's mean")
    refused(Late(), "end of the epoch is no batch's mean", num_sanity_val_steps=0)


def test_a_name_that_is_logged_twice():
    def twice(net, logits, y):
        mean_loss(net, logits, y)
        mean_loss(net, logits, y)

    refused(logs(twice), "once for each batch")


@pytest.mark.parametrize("reduction", ["sum", "max", "min", torch.max, sum])
def test_another_reduction(reduction):
    def step(net, logits, y):
        net.log("val_loss", functional.cross_entropy(logits, y), reduce_fx=reduction)

    refused(logs(step), "reduce_fx")


@pytest.mark.parametrize("reduction", ["mean", "AVG", torch.mean])
def test_a_mean_by_any_name(reduction):
    def step(net, logits, y):
        net.log("val_loss", functional.cross_entropy(logits, y), reduce_fx=reduction)

    assert "val_loss" in run(logs(step), guard_class(NAMESPACES[0])(account(LOSS))).callback_metrics


def test_values_that_are_no_number_are_not_quoted():
    for value in (torch.tensor([0.123456, 2.0]), [0.123456], "0.123456", {"a": torch.ones(2)}):
        for super_log in (False, True):

            def step(net, logits, y, value=value, super_log=super_log):
                log = package(NAMESPACES[0]).LightningModule.log if super_log else type(net).log
                (log if super_log else lambda net, *a: net.log(*a))(net, "val_loss", value)

            holdout = account(LOSS)
            with pytest.raises(InvalidArgumentError) as caught:
                run(logs(step), guard_class(NAMESPACES[0])(holdout))
            assert "0.123456" not in str(caught.value)
            assert holdout.status().queries == 0


METRICS = {
    "average='macro'": lambda: MulticlassAccuracy(3),
    "MulticlassAUROC": lambda: MulticlassAUROC(3),
    "ignore_index": lambda: MulticlassAccuracy(3, average="micro", ignore_index=0),
    "dist_sync_on_step": lambda: MulticlassAccuracy(3, average="micro", dist_sync_on_step=True),
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("way", ["metric", "forward", "collection"])
def test_metrics_that_are_no_means_are_refused_by_name(name, way):
    def step(net, logits, y):
        if way == "collection":
            net.log_dict(net.own(logits, y))
            return
        value = net.own(logits, y)
        net.log("val_loss", net.own if way == "metric" else value)

    metric = METRICS[name]()
    own = MetricCollection({"val_loss": metric}) if way == "collection" else metric
    refused(logs(step, own=own), name.replace("'", "."))


def test_metrics_that_do_not_count_examples_are_no_zero_one():
    def step(net, logits, y):
        net.own.update(logits[:, 0], y.float())
        net.log("val_acc", net.own)

    statistics = {"val_acc": th.LoggedMean(0.0, 1.0, mode="max", kind="zero_one")}
    refused(logs(step, own=MeanSquaredError()), "does not count", statistics=statistics)
    refused(logs(step, own=MeanSquaredError(squared=False)), "squared", statistics=statistics)

    def labels(net, logits, y):
        net.own.update(logits, nn.functional.one_hot(y, 3))
        net.log("val_acc", net.own)

    own = MultilabelAccuracy(3, average="micro")
    refused(logs(labels, own=own), "MultilabelAccuracy", statistics=statistics)

    def binary(net, logits, y):
        net.own.update(logits[:, 0], (y > 0).long())
        net.log("val_acc", net.own)

    run(logs(binary, own=BinaryAccuracy()), guard_class(NAMESPACES[0])(account(statistics)))


def test_a_metric_that_is_updated_beside_the_logged_ones():
    def step(net, logits, y):
        mean_loss(net, logits, y)
        net.own.update(logits, y)

    own = MulticlassAUROC(3)
    refused(logs(step, own=own), "own", UnguardedLogError)
    holdout = account(LOSS)
    found = trainer([guard_class(NAMESPACES[0])(holdout, unguarded="drop")], max_epochs=1)
    with pytest.warns(th.HoldoutWarning, match="own"):
        found.fit(logs(step, own=own), *foreign.loaders())
    assert own.update_count == 0
    assert not own.preds


def test_a_metric_that_the_module_does_not_hold_or_has_not_updated():
    hidden = MulticlassAccuracy(3, average="micro")

    def step(net, logits, y):
        hidden.update(logits, y)
        net.log("val_loss", hidden)

    refused(logs(step), "attribute of the module")

    def not_updated(net, logits, y):
        net.log("val_loss", net.own)

    own = MulticlassAccuracy(3, average="micro")
    refused(logs(not_updated, own=own), "updated in the same step")


@pytest.mark.parametrize("ending", ["_epoch", "_step"])
def test_a_name_that_lightning_would_make_is_not_monitored(ending):
    holdout = account()
    stopping = package(NAMESPACES[0]).callbacks.EarlyStopping(f"val_loss{ending}")
    module = logs(lambda own, logits, y: own.log("val_loss", logits.mean(), on_step=True))
    with pytest.raises(InvalidArgumentError, match=r"Write monitor='val_loss'"):
        run(module, guard_class(NAMESPACES[0])(holdout), stopping)
    assert holdout.status().queries == 0


def test_another_batch_size_than_the_loaders():
    def step(net, logits, y):
        net.log("val_loss", functional.cross_entropy(logits, y), batch_size=7)

    refused(logs(step), "batch_size=", PartialPassError)

    class Flat(foreign.base(NAMESPACES[0])):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return [torch.zeros(3), *batch]  # Lightning takes the first for the batch

        def training_step(self, batch, batch_idx):
            return functional.cross_entropy(self.layers(batch[1]), batch[2])

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", functional.cross_entropy(self.layers(batch[1]), batch[2]))

    refused(Flat(), "Lightning infers", PartialPassError)


def test_shuffled_loaders_and_other_batch_sizes():
    own = data(SIZE)
    for loader, match in (
        (DataLoader(own, batch_size=BATCH, shuffle=True), "RandomSampler"),
        (DataLoader(own, batch_size=BATCH, sampler=RandomSampler(own)), "RandomSampler"),
        (DataLoader(own, batch_size=BATCH, sampler=SubsetRandomSampler(range(SIZE))), "Subset"),
        (DataLoader(own, batch_size=BATCH - 1), f"batches of {BATCH}"),
        (DataLoader(own, batch_sampler=[range(0, 60), range(60, SIZE)]), "keeps the dataset"),
    ):
        for sanity in (0, 2):
            refused(
                logs(mean_loss), match, PartialPassError, val=loader, num_sanity_val_steps=sanity
            )


def test_examples_that_are_units_may_be_shuffled():
    def accuracy(net, logits, y):
        net.log("val_acc", (logits.argmax(1) == y).float().mean())

    statistics = {"val_acc": th.LoggedMean(0.0, 1.0, mode="max", kind="zero_one")}
    own = data(SIZE)
    values = []
    for options in ({"batch_size": BATCH}, {"batch_size": 7, "shuffle": True}):
        net = seeded(logs, accuracy)
        guard = guard_class(NAMESPACES[0])(account(statistics))
        found = trainer([guard], max_epochs=1, num_sanity_val_steps=0)
        torch.manual_seed(0)
        fit(found, net, foreign.loaders()[0], DataLoader(own, **options))
        values.append(float(found.callback_metrics["val_acc"]))
    assert values[0] == pytest.approx(values[1], abs=1e-9)


# ---- the best of the guarded values


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_best_guarded_value_so_far_is_kept_and_logged(namespace):
    class Best(package(namespace).Callback):
        def __init__(self):
            self.val_acc_best = MaxMetric()

        def on_validation_epoch_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                self.val_acc_best.update(trainer.callback_metrics["val_acc"])
                pl_module.log("val_acc_best", self.val_acc_best.compute())

    best = Best()
    guard = guard_class(namespace)(account(), public=("val_acc_best",))
    values = []

    class Values(package(namespace).Callback):
        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                values.append(float(trainer.callback_metrics["val_acc"]))

    net = seeded(foreign.collection, namespace)
    found = run(net, guard, best, Values(), namespace=namespace, max_epochs=4)
    assert len(set(values)) > 1
    assert float(found.callback_metrics["val_acc_best"]) == pytest.approx(max(values), abs=1e-6)

    undeclared = guard_class(namespace)(account())
    with pytest.raises(UnguardedLogError):
        run(seeded(foreign.collection, namespace), undeclared, Best(), namespace=namespace)
