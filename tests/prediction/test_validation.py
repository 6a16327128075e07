import itertools
import math

import pytest
import torch
import torch_holdout as th
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch_holdout.errors import (
    BudgetExhaustedError,
    InvalidArgumentError,
    PartialPassError,
)
from torch_holdout.ledger import Ledger
from torch_holdout.prediction import PrivacyBudget, PrivatePredictor
from torch_holdout.prediction.mechanisms import GNMax, SoftMajority
from torch_holdout.prediction.validation import expected_accuracy, step_charge

from support.builders.members import Members, queries

LADDER = th.Ladder(step=0.02, sigma=0.1)
SOFT_ACCURACY = th.BoundedMean(0.0, 1.0, mode="max")


def setup(tmp_path, mechanism=LADDER, *, epsilon=50.0, eta=0.2, budget=5, size=40, **options):
    url = f"sqlite:///{tmp_path}/both.db"
    ensemble = options.pop("ensemble", None) or Members()
    predictor = PrivatePredictor(
        ensemble,
        options.pop("rule", None) or SoftMajority(eta=eta),
        budget=PrivacyBudget(epsilon=epsilon),
        ledger=options.pop("ledger", url),
        name="records",
    )
    statistics = {"val_acc": SOFT_ACCURACY, "val_loss": th.BoundedMean(0.0, 5.0)}
    holdout = th.ReusableHoldout(
        url, name="val", size=size, statistics=statistics, mechanism=mechanism, budget=budget
    )
    labels = torch.arange(size) % 3
    return predictor, holdout, DataLoader(TensorDataset(queries(size), labels), batch_size=16)


def spent(tmp_path, name="records"):
    ledger = Ledger(f"sqlite:///{tmp_path}/both.db")
    return ledger.records_summary(ledger.find_records(name), check=True)


def test_both_accounts_pay_once(tmp_path):
    predictor, holdout, loader = setup(tmp_path)
    answer = predictor.validate(holdout, "val_acc", loader, query="run 1")
    assert answer.kind == "release"
    assert 0 <= answer.value <= 1
    assert holdout.status().releases == 1
    step = (math.tanh(0.1) + 1 / 65536) / 0.1
    assert predictor.status().epsilon_spent == pytest.approx(step, rel=1e-6)  # forced: one step
    assert predictor.status().queries == 1
    again = predictor.validate(holdout, "val_acc", loader, query="run 1")
    assert (again.kind, again.value) == ("repeat", answer.value)
    assert spent(tmp_path).charges == 1


def test_the_weights_do_not_name_the_query(tmp_path):
    """Whether two trainings gave the same weights is a fact about the records: it costs nothing,
    and so nothing may tell it."""
    predictor, holdout, loader = setup(tmp_path)
    first = predictor.validate(holdout, "val_acc", loader, query="run 1")
    with torch.no_grad():
        predictor.ensemble.weight.mul_(-1)
    again = predictor.validate(holdout, "val_acc", loader, query="run 1")
    assert (again.kind, again.value) == ("repeat", first.value)
    assert predictor.validate(holdout, "val_acc", loader, query="run 2").kind != "repeat"
    with pytest.raises(InvalidArgumentError, match="query"):
        predictor.validate(holdout, "val_acc", loader, query="")


def test_a_refused_validation_leaves_the_account_to_the_predictor(tmp_path):
    predictor, holdout, loader = setup(tmp_path, epsilon=1.5)
    before = predictor.plan()
    with pytest.raises(BudgetExhaustedError):
        predictor.validate(holdout, "val_acc", loader, query="run 1")
    assert predictor.plan() == before


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        (th.Ladder(step=0.1), "sigma > 0"),
        (th.Thresholdout(threshold=0.1, sigma=0.0, guess="last"), "sigma > 0"),
        (th.SparseVector(threshold=0.1, sigma=0.1), "training guess"),
        (th.EffectiveRounds(threshold=0.1, sigma=0.1, rounds=5), "training guess"),
    ],
)
def test_holdouts_that_protect_no_training_record_are_refused(tmp_path, mechanism, words):
    predictor, holdout, loader = setup(tmp_path, mechanism)
    with pytest.raises(InvalidArgumentError, match=words):
        predictor.validate(holdout, "val_acc", loader, query="run 1")


def test_a_seeded_holdout_protects_no_training_record(tmp_path):
    predictor, _, loader = setup(tmp_path)
    seeded = th.ReusableHoldout(
        f"sqlite:///{tmp_path}/both.db", name="seeded", size=40, budget=5, seed=1,
        statistics={"val_acc": SOFT_ACCURACY}, mechanism=LADDER,
    )  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="seed"):
        predictor.validate(seeded, "val_acc", loader, query="run 1")


def test_a_loader_that_repeats_or_hides_whose_rows_they_are_is_refused(tmp_path):
    """A count of rows does not see it: an example drawn twice, patients whose rows are mixed."""
    predictor, _, loader = setup(tmp_path)
    grouped = th.GroupedMean(0.0, 1.0, mode="max", groups=[row // 2 for row in range(40)])
    holdout = th.ReusableHoldout(
        f"sqlite:///{tmp_path}/both.db", name="grouped", size=40, budget=5, mechanism=LADDER,
        statistics={"val_acc": SOFT_ACCURACY, "by_patient": grouped},
    )  # fmt: skip
    shuffled = DataLoader(loader.dataset, batch_size=16, shuffle=True)
    twice = RandomSampler(loader.dataset, replacement=True, num_samples=40)
    for name, read, error, words in (
        ("by_patient", shuffled, InvalidArgumentError, "the loader shuffles"),
        ("by_patient", DataLoader(loader.dataset, sampler=twice), PartialPassError, "repeats"),
        ("val_acc", DataLoader(loader.dataset, sampler=twice), PartialPassError, "repeats"),
        ("val_acc", DataLoader(loader.dataset, drop_last=True, batch_size=16), PartialPassError,
         "drop_last"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            predictor.validate(holdout, name, read, query="run 1")
    assert holdout.status().queries == predictor.status().queries == 0
    predictor.validate(holdout, "by_patient", loader, query="run 1")
    predictor.validate(holdout, "val_acc", shuffled, query="run 1")
    assert holdout.status().queries == 2


def test_comparisons_and_answers_are_steps(tmp_path):
    last = th.Thresholdout(threshold=0.9, sigma=0.01, guess="last")
    predictor, holdout, loader = setup(tmp_path, last, epsilon=900.0)
    predictor.validate(holdout, "val_acc", loader, query="run 1")  # forced: an answer
    step = spent(tmp_path).spent
    with torch.no_grad():
        predictor.ensemble.weight.mul_(-1)
    assert (
        predictor.validate(holdout, "val_acc", loader, query="run 2").kind == "guess"
    )  # a comparison
    assert spent(tmp_path).spent == 2 * step


def test_two_changed_members_cost_twice_the_sensitivity(tmp_path):
    one, holdout, _ = setup(tmp_path)
    two, _, _ = setup(tmp_path, ensemble=Members(members_changed=2))
    charges = [step_charge(p.mechanism, p.records, holdout, "val_acc") for p in (one, two)]
    rounding = (1 / 65536) / 0.1
    assert charges[1].epsilon - rounding == pytest.approx(2 * (charges[0].epsilon - rounding))


def test_gaussian_noise_is_charged_in_rho(tmp_path):
    predictor, holdout, _ = setup(tmp_path, th.GaussianMechanism(sigma=0.1))
    charge = step_charge(predictor.mechanism, predictor.records, holdout, "val_acc")
    shift = math.tanh(0.1) + 1 / 65536
    assert charge.rho == pytest.approx(shift**2 / (2 * 0.1**2))


def test_too_small_a_records_budget_releases_and_charges_nothing(tmp_path):
    predictor, holdout, loader = setup(tmp_path, epsilon=1.5)  # one step costs 1.0, two do not fit
    with pytest.raises(BudgetExhaustedError, match="comparison and an answer"):
        predictor.validate(holdout, "val_acc", loader, query="run 1")
    assert holdout.status().queries == 0
    assert predictor.status().queries == 0


def test_a_holdout_that_only_answers_needs_one_step(tmp_path):
    predictor, holdout, loader = setup(tmp_path, th.LaplaceMechanism(epsilon=0.25), epsilon=1.5)
    assert predictor.validate(holdout, "val_acc", loader, query="run 1").kind == "release"
    (tmp_path / "b").mkdir()
    predictor, holdout, loader = setup(tmp_path / "b")
    with pytest.raises(InvalidArgumentError, match="inputs and labels"):
        predictor.validate(holdout, "val_acc", [{"x": 1}], query="run 1")


def test_an_exhausted_holdout_charges_the_records_nothing(tmp_path):
    predictor, holdout, loader = setup(tmp_path, th.LaplaceMechanism(epsilon=0.3), budget=1)
    predictor.validate(holdout, "val_acc", loader, query="run 1")
    before = spent(tmp_path)
    with torch.no_grad():
        predictor.ensemble.weight.mul_(2).add_(0.1)
    assert predictor.validate(holdout, "val_acc", loader, query="run 2").kind == "exhausted"
    assert spent(tmp_path) == before


def test_a_failed_commit_charges_neither(tmp_path, monkeypatch):
    predictor, holdout, loader = setup(tmp_path)
    holdout.status()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("torch_holdout.ledger.holdouts.Account._keep_secret", fail)
    with pytest.raises(th.HoldoutError, match="OSError in fail"):
        predictor.validate(holdout, "val_acc", loader, query="run 1")
    monkeypatch.undo()
    assert holdout.status().queries == 0
    assert predictor.status().queries == 0


def test_a_metric_by_blocks_is_refused(tmp_path):
    """One member moves each example's accuracy little, but not what a metric makes of a block."""
    predictor, _, loader = setup(tmp_path)
    blocks = th.Blockwise(lambda values: values.max(), 5, 0.0, 1.0)
    rule = th.LaplaceMechanism(epsilon=1.0)
    holdout = th.ReusableHoldout(
        f"sqlite:///{tmp_path}/both.db", name="blocks", size=len(loader.dataset),
        statistics={"val_blocks": blocks}, mechanism=rule, budget=3,
    )  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="bounds 0 and 1"):
        predictor.validate(holdout, "val_blocks", loader, query="run 1")


def test_training_guesses_other_ledgers_and_statistics_are_refused(tmp_path):
    train = th.Thresholdout(threshold=0.1, sigma=0.1, guess="train")
    predictor, holdout, loader = setup(tmp_path, train)
    with pytest.raises(InvalidArgumentError, match="training guess"):
        predictor.validate(holdout, "val_acc", loader, query="run 1")
    (tmp_path / "b").mkdir()
    predictor, holdout, loader = setup(tmp_path / "b")
    for name in ("val_loss", "nothing"):
        with pytest.raises(InvalidArgumentError, match="bounds 0 and 1"):
            predictor.validate(holdout, name, loader, query="run 1")
    (tmp_path / "c").mkdir()
    predictor, holdout, loader = setup(tmp_path / "c", ledger="memory://")
    with pytest.raises(InvalidArgumentError, match="one ledger"):
        predictor.validate(holdout, "val_acc", loader, query="run 1")
    (tmp_path / "d").mkdir()
    predictor, holdout, loader = setup(tmp_path / "d", rule=GNMax(sigma=5.0))
    with pytest.raises(InvalidArgumentError, match="SoftMajority"):
        predictor.validate(holdout, "val_acc", loader, query="run 1")


def test_a_partial_pass_releases_nothing(tmp_path):
    predictor, holdout, loader = setup(tmp_path)
    short = DataLoader(loader.dataset, batch_size=16, drop_last=True)
    with pytest.raises(th.PartialPassError):
        predictor.validate(holdout, "val_acc", short, query="run 1")
    assert predictor.status().queries == 0


def test_labels_that_are_no_class_are_never_right_and_raise_nothing(tmp_path):
    ensemble, rule = Members(), SoftMajority(eta=0.2)
    x = queries(6)
    values = expected_accuracy(ensemble, rule, x, torch.tensor([0, 1, 2, -1, 3, 99]))
    assert ((values[:3] > 0) & (values[:3] < 1)).all()
    assert (values[3:] == 0).all()


@pytest.mark.parametrize("eta", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_one_member_moves_the_expected_accuracy_by_at_most_tanh(eta, classes):
    """Every neighbour of every small vote table, and the label: none beyond tanh(eta/2)."""
    rule, largest = SoftMajority(eta=eta), 0.0
    for votes in itertools.product(range(9), repeat=classes):
        if not votes[0]:
            continue
        for to in range(1, classes):
            moved = list(votes)
            moved[0] -= 1
            moved[to] += 1
            pair = rule.chances(torch.tensor([votes, moved]))
            largest = max(largest, float((pair[0] - pair[1]).abs().max()))
    assert largest <= math.tanh(eta / 2) + 1e-12
    if classes == 2:
        assert largest > 0.99 * math.tanh(eta / 2)  # and the bound is what happens
